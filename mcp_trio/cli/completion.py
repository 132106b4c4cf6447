"""The command that lets a shell complete what is typed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from ..client.target import is_url
from ..load_spec import UsageError, load
from .command import Command
from .options import Parser, one_of

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
# To use it: eval "$(mcp-trio completion zsh)" behind compinit in ~/.zshrc
_mcp_trio() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
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
    "fish": r"""# To use it: mcp-trio completion fish | source, also in ~/.config/fish/config.fish
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


def arguments(parser: Parser) -> None:
    """What completion takes."""
    parser.add_argument(
        "shell", metavar="SHELL", type=one_of(SCRIPTS), help=", ".join(SCRIPTS)
    )


def completion(options: argparse.Namespace) -> int:
    """Print what lets a shell complete commands, flags and tools.

    Behind `--` are the words of a line so far, of which the last one is completed: that is what it calls.
    """
    if not options.command:
        print(SCRIPTS[options.shell], end="")
    for word in completed(options.commands, options.command):
        print(word)
    return 0


def completed(commands: Mapping[str, Command], words: list[str]) -> list[str]:
    """What the last word may become; nothing where it may be a file."""
    if not words:
        return []
    *before, last = words
    return [
        word for word in _candidates(commands, before, last) if word.startswith(last)
    ]


def _candidates(
    commands: Mapping[str, Command], before: list[str], last: str
) -> list[str]:
    if not before and not last.startswith("-"):
        return list(commands)
    name = before[0] if before and not before[0].startswith("-") else "run"
    if name not in commands or "--" in before:
        return []
    parser = Parser()
    commands[name].arguments(parser)
    flags = parser._option_string_actions
    if before and (flag := flags.get(before[-1])) and flag.nargs is None:
        return list(getattr(flag.type, "words", ()))
    if last.startswith("-"):
        return [*flags, "--"]
    given = _positional(before[1:], flags)
    if name == "completion":
        return list(SCRIPTS)
    return (
        _of_tools(given)
        if name in ("call", "bench") and given and "=" not in last
        else []
    )


def _positional(words: list[str], flags: Mapping[str, argparse.Action]) -> list[str]:
    """The words that are neither flags nor the values of flags."""
    takes = [
        (flag := flags.get(word)) is not None and flag.nargs is None for word in words
    ]
    return [
        word
        for word, is_value in zip(words, [False, *takes], strict=False)
        if not is_value and not word.startswith("-")
    ]


def _of_tools(given: list[str]) -> list[str]:
    """The tools of a SPEC, or what is left of a tool's arguments; a server elsewhere is not asked for them."""
    spec, *tool = given
    if is_url(spec):
        return []
    try:
        with _silence():
            tools = load(spec).tools
    except UsageError:
        return []
    if not tool:
        return list(tools)
    taken = {pair.partition("=")[0] for pair in tool[1:]}
    return [
        f"{key}="
        for key in (tools[tool[0]].properties if tool[0] in tools else ())
        if key not in taken
    ]


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing that a SPEC prints, in whatever way, is taken for a word."""
    kept = os.dup(1)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
