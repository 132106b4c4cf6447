"""The command `completion`: scripts for shells, and the completions that they show."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from ..load_spec import UsageError, load
from .command import Command
from .options import Parser, looks_like_url, one_of

SCRIPTS = {
    "bash": r"""# To use it: eval "$(mcp-trio completion bash)", also in ~/.bashrc
_mcp_trio() {
    local line="${COMP_LINE:0:COMP_POINT}" word
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" completion bash -- "${words[@]:1}" 2> /dev/null)
    [[ "${COMPREPLY[0]-}" == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _mcp_trio mcp-trio
""",
    "zsh": r"""#compdef mcp-trio
# To use it: eval "$(mcp-trio completion zsh)" after compinit in ~/.zshrc
_mcp_trio() {
    local -a found given
    given=("${(@)words[2,CURRENT]}")
    found=("${(@f)$("${words[1]}" completion zsh -- "${(@)given}" 2> /dev/null)}")
    if [[ -z "${found[1]}" ]]; then
        _files
    elif [[ "${found[1]}" == *= ]]; then
        compadd -S '' -- "${found[@]}"
    else
        compadd -- "${found[@]}"
    fi
}
compdef _mcp_trio mcp-trio
""",
    "fish": r"""# To use it: mcp-trio completion fish | source
# The same line in ~/.config/fish/config.fish makes it permanent.
function __mcp_trio
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l found ($program completion fish -- $words (commandline -ct) 2> /dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c mcp-trio -f -a '(__mcp_trio)'
""",
}


def completion_arguments(parser: Parser) -> None:
    """Declare the arguments of `completion`."""
    parser.add_argument(
        "shell", metavar="SHELL", type=one_of(SCRIPTS), help=", ".join(SCRIPTS)
    )


def completion(options: argparse.Namespace) -> int:
    """Print a script for a shell, or the completions of a command line.

    The script calls this command again, with the words of the line after `--`. The last
    of them is the one to complete.
    """
    if not options.command:
        print(SCRIPTS[options.shell], end="")
    for word in completed(options.commands, options.command):
        print(word)
    return 0


def completed(commands: Mapping[str, Command], words: list[str]) -> list[str]:
    """Return the completions of the last word, or no words if it may be a file."""
    if not words:
        return []
    *before, last = words
    candidates = _candidates(commands, before, last)
    return [word for word in candidates if word.startswith(last)]


def _candidates(
    commands: Mapping[str, Command], before: list[str], last: str
) -> list[str]:
    if not before and not last.startswith("-"):
        return list(commands)
    name = "run"
    if before and not before[0].startswith("-"):
        name = before[0]
    if name not in commands or "--" in before:
        return []
    parser = Parser()
    commands[name].add_arguments(parser)
    options = parser.known_options
    if before and _takes_value(options, before[-1]):
        return list(getattr(options[before[-1]].type, "words", ()))
    if last.startswith("-"):
        return [*options, "--"]
    if name == "completion":
        return list(SCRIPTS)
    given = _positional(before[1:], options)
    if name in ("call", "bench") and given and "=" not in last:
        return _tools_or_arguments(given)
    return []


def _takes_value(options: Mapping[str, argparse.Action], word: str) -> bool:
    """Return whether a word is an option that takes a value."""
    return word in options and options[word].nargs is None


def _positional(words: list[str], options: Mapping[str, argparse.Action]) -> list[str]:
    """Return the words that are neither options nor their values."""
    found = []
    previous = ""
    for word in words:
        if not word.startswith("-") and not _takes_value(options, previous):
            found.append(word)
        previous = word
    return found


def _tools_or_arguments(given: list[str]) -> list[str]:
    """Return the tools of a SPEC, or the arguments of a tool that are not given yet.

    This does not connect to a server at a URL.
    """
    spec, *words = given
    if looks_like_url(spec):
        return []
    try:
        with _silence():
            tools = load(spec).tools
    except UsageError:
        return []
    if not words:
        return list(tools)
    tool, *pairs = words
    if tool not in tools:
        return []
    used = {pair.partition("=")[0] for pair in pairs}
    return [f"{key}=" for key in tools[tool].properties if key not in used]


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what a SPEC prints, because the shell would use it as a completion."""
    stdout = os.dup(1)
    with open(os.devnull, "w") as null, redirect_stdout(null):
        os.dup2(null.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
