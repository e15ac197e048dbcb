"""Producers that send each message to all sites, and count it as sent once enough sites have confirmed it.

A file has the required number of sites; it may change at any time. While fewer sites let producers in, nothing is sent.
A message that can no longer get enough confirmations is in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl.core.system import boottime_s
from dr_ctl.stomp_io.client import ConnectionLost
from dr_ctl_lab.lab.clients.client import Client, Confirmed, Outgoing, Proto
from dr_ctl_lab.lab.ledger import Event, Ledger
from dr_ctl_lab.lab.sending import MAX_OUTSTANDING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dr_ctl.core.system import Event as SystemEvent
    from dr_ctl.stomp_io.address import Address, Login
    from dr_ctl_lab.lab.clients.dialling import Opener

REQUIRED_FILE = "min-ack-count"  # in a lab's directory
RETRY_S, LOGIN_S = 0.2, 0.5
FINISH_S, TURN_S = 3.0, 0.05


@dataclass(frozen=True, slots=True)
class FanOut:
    """The producers' listener of each site and node, and the file with the required number of confirmations."""

    sites: tuple[tuple[str, Address], ...]
    required_file: Path

    def required(self) -> int:
        """The required number; all sites while the file is being written."""
        text = self.required_file.read_text().strip()
        return int(text) if text.isdigit() else len({site for site, _ in self.sites})


@dataclass(frozen=True, slots=True)
class Producing:
    """The work of one producer: messages, rate, and the events that pause and stop it."""

    messages: Iterator[Outgoing]
    protocol: Proto
    opener: Opener
    ledger: Ledger
    interval_s: float
    producing: SystemEvent
    stop: SystemEvent


def produce(fan: FanOut, login: Login, order: Producing) -> None:
    """Send at the rate until `stop`, then wait until every message is confirmed or in doubt."""
    connections = _Connections(fan, login, order)
    sending = _Sending(order)
    due, stopped_at = boottime_s(), None
    while True:
        now, required = boottime_s(), fan.required()
        if order.stop.is_set():
            stopped_at = stopped_at or now
            if not sending.outstanding or now - stopped_at > FINISH_S:
                break
        elif not order.producing.is_set():
            due = now
        elif len(connections.connect(now)) >= required:
            while due <= now and len(sending.outstanding) < MAX_OUTSTANDING and len(connections.open) >= required:
                sending.send_one(connections)
                # After a stall, at most one second of missed sends is made up.
                due = max(due + order.interval_s, now - 1.0)
        sends = stopped_at is None and order.producing.is_set() and len(connections.open) >= required
        for site, receipt in connections.receive(max(0.0005, min(due - boottime_s(), TURN_S)) if sends else TURN_S):
            sending.confirmed(site, receipt)
        sending.settle(required, connections.open)
    sending.give_up()
    connections.close()


@dataclass(slots=True)
class _Message:
    queue: str
    sites: frozenset[str]
    confirmed: set[str] = field(default_factory=set)


class _Connections:
    """A producer's connections, one to each site that lets it in."""

    def __init__(self, fan: FanOut, login: Login, order: Producing) -> None:
        self.open: dict[str, Client] = {}
        self._fan, self._login, self._order = fan, login, order
        self._not_before: dict[Address, float] = {}

    def connect(self, now: float) -> dict[str, Client]:
        """Connect to sites without a connection, at most every `RETRY_S`."""
        for site, address in self._fan.sites:
            if site not in self.open and now >= self._not_before.get(address, 0.0):
                client = self._order.opener.open(self._order.protocol, address, self._login, timeout_s=LOGIN_S)
                self._not_before[address] = boottime_s() + RETRY_S
                if client is not None:
                    self.open[site] = client
        return self.open

    def receive(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """Receive confirmations for up to `timeout_s`; drop lost connections."""
        if not self.open:
            self._order.stop.wait(timeout_s)
        for site, client in list(self.open.items()):
            try:
                for frame in client.receive(timeout_s / len(self.open)):
                    if isinstance(frame, Confirmed):
                        yield site, frame.name
                client.beat()
            except ConnectionLost:
                self.lose(site)

    def lose(self, site: str) -> None:
        self.open.pop(site).close(politely=False)

    def close(self) -> None:
        for client in self.open.values():
            client.close()


class _Sending:
    """A producer's sends without enough confirmations."""

    def __init__(self, order: Producing) -> None:
        self._order = order
        self.outstanding: dict[str, _Message] = {}

    def send_one(self, connections: _Connections) -> None:
        message = next(self._order.messages)
        self._order.ledger.attempt(message.queue, message.ident)
        self.outstanding[message.ident] = _Message(message.queue, frozenset(connections.open))
        for site, client in list(connections.open.items()):
            try:
                client.send(message, confirm=message.ident)
            except ConnectionLost:
                connections.lose(site)

    def confirmed(self, site: str, ident: str) -> None:
        if ident in self.outstanding:
            self.outstanding[ident].confirmed.add(site)

    def settle(self, required: int, connected: dict[str, Client]) -> None:
        """Record messages with enough confirmations, and those that can no longer get them."""
        for ident, message in list(self.outstanding.items()):
            if len(message.confirmed) >= required:
                self._record(Event.SENT, ident, min(message.confirmed))
            elif len(message.confirmed | (message.sites & connected.keys())) < required:
                self._record(Event.SEND_IN_DOUBT, ident, min(message.sites))

    def give_up(self) -> None:
        for ident, message in list(self.outstanding.items()):
            self._record(Event.SEND_IN_DOUBT, ident, min(message.sites))

    def _record(self, event: Event, ident: str, site: str) -> None:
        self._order.ledger.record(event, self.outstanding.pop(ident).queue, ident, site)
