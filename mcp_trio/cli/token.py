"""The command that makes a token, and the flag that lets tokens in."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from hashlib import sha256

from ..auth.access import Access
from ..auth.principal import as_scopes
from ..load_spec import UsageError
from ..server.app import Server
from .options import Parser


def arguments(parser: Parser) -> None:
    """What token takes."""
    parser.add_argument(
        "name", metavar="NAME", help="of the principal that the token stands for"
    )
    parser.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="SCOPE",
        help="that the token has; repeatable",
    )


def token(options: argparse.Namespace) -> int:
    """Make a token, and on stderr its line for the file of --token-file."""
    if not re.fullmatch(r"[^\s#]+", options.name):
        raise UsageError(
            f"token: {options.name!r} is no name: one word without # is wanted"
        )
    try:
        scopes = as_scopes(options.scope, "--scope")
    except ValueError as error:
        raise UsageError(str(error)) from None
    if any("," in scope for scope in scopes):
        raise UsageError(
            "--scope takes one scope, without a comma; say it again for the next one"
        )
    made = secrets.token_urlsafe(32)
    line = [options.name, sha256(made.encode()).hexdigest(), ",".join(sorted(scopes))]
    print(made, flush=True)
    print(" ".join(line).rstrip(), file=sys.stderr)
    return 0


def let_in(server: Server, path: str) -> None:
    """Have a server take the tokens of a file. Raises UsageError."""
    from ..auth.token_file import token_file

    try:
        verify = token_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--token-file: {error}") from None
    if server.access is None:
        server.access = Access(verify)
    else:  # what the server wants of every token holds for these too
        server.access.verify = verify
