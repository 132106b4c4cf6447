"""The command `token`: create an access token."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from hashlib import sha256

from ..auth.principal import as_scopes
from ..load_spec import UsageError
from .options import Parser


def token_arguments(parser: Parser) -> None:
    """Declare the arguments of `token`."""
    parser.add_argument(
        "name", metavar="NAME", help="the name of the principal with this token"
    )
    parser.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="SCOPE",
        help="a scope of the token; may be repeated",
    )


def token(options: argparse.Namespace) -> int:
    """Print a token, and on standard error its line for the file of --token-file."""
    if not re.fullmatch(r"[^\s#]+", options.name):
        raise UsageError(f"token: expected a word without '#', got {options.name!r}")
    try:
        scopes = as_scopes(options.scope, "--scope")
    except ValueError as error:
        raise UsageError(str(error)) from None
    for scope in scopes:
        if "," in scope:
            raise UsageError(
                f"--scope: expected one scope, got {scope!r}; repeat --scope for more"
            )
    # Hexadecimal, because a token that begins with "-" would look like an option.
    secret = secrets.token_hex(32)
    digest = sha256(secret.encode()).hexdigest()
    line = f"{options.name} {digest} {','.join(sorted(scopes))}".rstrip()
    print(secret, flush=True)
    print(line, file=sys.stderr)
    return 0
