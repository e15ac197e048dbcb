"""The fence of a broker: how clients are kept out of it and let in, here by its listeners alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dr_ctl.topologies.common.calls import close_listener, open_listener

if TYPE_CHECKING:
    from dr_ctl.engine.plan import Call
    from dr_ctl.topologies.common.view import Acceptor, Broker, Connection, PeerState


class Fence:
    """A broker's fence, by one reading of the broker."""

    contenders: Sequence[str] = ()
    """The locks that may open it at any moment, or hold it open."""
    awaits: Sequence[str] = ()
    """Those of them that another holds."""
    passive: Sequence[str] = ()
    """Those that open it only once they are started again."""
    boots_closed: bool | None
    """Whether clients stay out when the broker is restarted, or None if unknown."""

    def __init__(self, view: Broker) -> None:
        self.view = view
        self.boots_closed = not any(listener.opens_at_boot for listener in view.listeners)

    @property
    def open(self) -> bool:
        """Say whether a client may get in."""
        return any(listener.started for listener in self.view.listeners)

    def opening(self, listeners: Iterable[Acceptor], _peer: PeerState, when: str | None = None) -> tuple[Call, ...]:
        """The calls that let clients in by these listeners; `_peer`: the state of the other site by then."""
        return tuple(open_listener(self.view, listener, when) for listener in listeners)

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        """The calls that keep clients out of these listeners."""
        return tuple(close_listener(self.view, listener, when) for listener in listeners)

    def yielding(self, _when: str | None = None) -> list[Call]:
        """The calls after which no lock opens it."""
        return []

    def revoking(self, _when: str | None = None) -> list[Call]:
        """The calls that keep the clients' roles out beyond a restart, if the settings name any. Without `when`, only
        where they may do something now."""
        return []

    def granting(self, _when: str | None = None) -> list[Call]:
        """The calls that let them in again. Without `when`, only where they are kept out now."""
        return []

    @property
    def needs_reload(self) -> bool:
        """Say whether roles that are let in stay kept out for sure until the broker's file is read again."""
        return False

    @property
    def roles_revoked(self) -> bool:
        """Say whether the lasting fence stands."""
        lasting = self.view.config.lasting
        return lasting is not None and not any(self.view.lets_in(match) for match in lasting.matches)

    @property
    def leaves_open(self) -> tuple[Acceptor, ...]:
        """The acceptors by which a client could come all the same."""
        known = {*self.view.config.clients, *self.view.link.reserved}
        return tuple(acceptor for acceptor in self.view.acceptors if acceptor.name not in known)

    def clients_elsewhere(self) -> list[str]:
        """Clients on listeners that are not theirs: clients there would go on working behind a fence."""
        others = {listener.port: listener.name for listener in self.leaves_open if listener.port is not None}
        return [
            _client_text(connection, others[connection.port])
            for connection in self.view.from_outside
            if connection.port in others
        ]

    def clients_at_link(self, peer: Broker | None) -> list[str]:
        """Clients on the listeners of the peer's link: they would go on working behind a fence too."""
        names = {listener.port: listener.name for listener in self.view.link.listeners if listener.port is not None}
        foreign_connections = self.view.link.foreign_connections(peer)
        remotes = {guest.remote for guest in foreign_connections}
        return [_client_text(guest, names[guest.port]) for guest in foreign_connections if guest.port is not None] + [
            f"consumer of {consumer.queue}: {consumer.who} on acceptor {names[consumer.port]}"
            for consumer in self.view.consumers
            if consumer.port in names and consumer.queue in self.view.business and consumer.remote not in remotes
        ]

    def holds(self, _call: Call) -> bool | None:
        """Say whether the effect of a call of this kind of fence is seen, or None for any other call."""
        return None


def _client_text(connection: Connection, listener: str) -> str:
    return (
        f"{connection.protocol} connection from {connection.remote} (user {connection.user or 'none'}, client "
        f"{connection.client or '(no client id)'}) on acceptor {listener}"
    )
