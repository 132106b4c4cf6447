"""Accounts: whose share of the server's resources a request uses."""

from collections.abc import Hashable

from msgspec import Struct

from ..auth.principal import Principal
from .conversation import Conversation

# Transports whose only client has the process, or a part of it, to itself.
LOCAL_TRANSPORTS = frozenset({"stdio", "memory"})


class Account(Struct, frozen=True):
    """One client, for the purpose of sharing.

    `kind` says whether `name` is a principal's name, a network address, or a
    conversation. So a principal whose name is an address is not confused with it.
    """

    kind: str
    name: Hashable
    # Whether the client is the only one.
    is_only_client: bool = False


def account_of(conversation: Conversation, principal: Principal | None) -> Account:
    """Return the account of a request.

    It belongs to the principal; without authentication to the address, and on stdio to
    the connection.
    """
    if conversation.transport in LOCAL_TRANSPORTS:
        return Account("connection", conversation, is_only_client=True)
    if principal is not None or conversation.address:
        return account_at(conversation.address, principal)
    return Account("connection", conversation)


def account_at(address: str, principal: Principal | None) -> Account:
    """Return the account of whoever is at an address, or of the principal."""
    if principal is not None:
        return Account("principal", principal.name)
    return Account("address", address)
