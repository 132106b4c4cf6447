"""Accounts: the clients among which the server's resources are shared."""

from collections.abc import Hashable

from msgspec import Struct

from ..auth.principal import Principal
from .conversation import Conversation

# Transports that serve a single client.
LOCAL_TRANSPORTS = frozenset({"stdio", "memory"})


class Account(Struct, frozen=True):
    """One client, for the purpose of fair sharing.

    `kind` says whether `name` is a principal's name, a network address or a
    conversation, so that a principal cannot be confused with an address.
    """

    kind: str
    name: Hashable
    # Whether the transport has no other clients.
    is_only_client: bool = False


def account_of(conversation: Conversation, principal: Principal | None) -> Account:
    """Return the account that a request is charged to.

    It is that of the principal. Without authentication it is that of the address, and
    on stdio that of the connection.
    """
    if conversation.transport in LOCAL_TRANSPORTS:
        return Account("connection", conversation, is_only_client=True)
    if principal is not None or conversation.address:
        return account_at(conversation.address, principal)
    return Account("connection", conversation)


def account_at(address: str, principal: Principal | None) -> Account:
    """Return the account of a principal, or without one that of an address."""
    if principal is not None:
        return Account("principal", principal.name)
    return Account("address", address)
