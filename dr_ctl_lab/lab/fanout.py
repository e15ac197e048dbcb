"""Producers that write each message to all sites at once, and count it as sent once enough of them have confirmed it.

How many are enough stands in a file that may change meanwhile. While fewer sites let producers in than that, nothing is
sent: a message that can no longer be confirmed by enough of them is in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl.core.system import boottime_s
from dr_ctl.stomp_io.client import ConnectionLost
from dr_ctl_lab.lab.clients.client import Client, Confirmed, Outgoing, Speaks
from dr_ctl_lab.lab.ledger import Event, Ledger
from dr_ctl_lab.lab.sending import MOST_OUTSTANDING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dr_ctl.core.system import Event as Told
    from dr_ctl.stomp_io.address import Address, Login
    from dr_ctl_lab.lab.clients.dialling import Opener

LEAST_FILE = "min-ack-count"  # in a lab's directory
AGAIN_S, LOGIN_S = 0.2, 0.5
FINISH_S, TURN_S = 3.0, 0.05


@dataclass(frozen=True, slots=True)
class FanOut:
    """Where producers write to, at each node of a site's broker, and the file that says how many sites have to
    confirm."""

    sites: tuple[tuple[str, Address], ...]
    least_in: Path

    def least(self) -> int:
        """How many; the full number while the file is being written."""
        text = self.least_in.read_text().strip()
        return int(text) if text.isdigit() else len({site for site, _ in self.sites})


@dataclass(frozen=True, slots=True)
class Producing:
    """Order for one producer: messages, rate, and the events that hold it or end it."""

    messages: Iterator[Outgoing]
    speaks: Speaks
    opener: Opener
    ledger: Ledger
    interval_s: float
    producing: Told
    no_more: Told


def produce(fan: FanOut, login: Login, what: Producing) -> None:
    """Send at the rate until told to stop, and then until the last one is confirmed or in doubt."""
    lines = _Lines(fan, login, what)
    sending = _Sending(what)
    due, stopped_at = boottime_s(), None
    while True:
        now, least = boottime_s(), fan.least()
        if what.no_more.is_set():
            stopped_at = stopped_at or now
            if not sending.outstanding or now - stopped_at > FINISH_S:
                break
        elif not what.producing.is_set():
            due = now
        elif len(lines.connect(now)) >= least:
            while due <= now and len(sending.outstanding) < MOST_OUTSTANDING and len(lines.open) >= least:
                sending.send_one(lines)
                # After a stall the rate goes on; missed sends are not made up for in one burst.
                due = max(due + what.interval_s, now - 1.0)
        sends = stopped_at is None and what.producing.is_set() and len(lines.open) >= least
        for site, receipt in lines.receive(max(0.0005, min(due - boottime_s(), TURN_S)) if sends else TURN_S):
            sending.confirmed(site, receipt)
        sending.settle(least, lines.open)
    sending.give_up()
    lines.close()


@dataclass(slots=True)
class _Message:
    queue: str
    asked: frozenset[str]
    confirmed: set[str] = field(default_factory=set)


class _Lines:
    """A producer's connections, one to each site that lets it in."""

    def __init__(self, fan: FanOut, login: Login, what: Producing) -> None:
        self.open: dict[str, Client] = {}
        self._fan, self._login, self._what = fan, login, what
        self._not_before: dict[Address, float] = {}

    def connect(self, now: float) -> dict[str, Client]:
        """Try where there is no connection, every now and then."""
        for site, address in self._fan.sites:
            if site not in self.open and now >= self._not_before.get(address, 0.0):
                client = self._what.opener.open(self._what.speaks, address, self._login, timeout_s=LOGIN_S)
                self._not_before[address] = boottime_s() + AGAIN_S
                if client is not None:
                    self.open[site] = client
        return self.open

    def receive(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """Take the receipts that came, and wait so long for them; a connection that is lost is forgotten."""
        if not self.open:
            self._what.no_more.wait(timeout_s)
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
    """Sends of a producer whose end it does not know."""

    def __init__(self, what: Producing) -> None:
        self._what = what
        self.outstanding: dict[str, _Message] = {}

    def send_one(self, lines: _Lines) -> None:
        message = next(self._what.messages)
        self._what.ledger.attempt(message.queue, message.ident)
        self.outstanding[message.ident] = _Message(message.queue, frozenset(lines.open))
        for site, client in list(lines.open.items()):
            try:
                client.send(message, confirm=message.ident)
            except ConnectionLost:
                lines.lose(site)

    def confirmed(self, site: str, ident: str) -> None:
        if ident in self.outstanding:
            self.outstanding[ident].confirmed.add(site)

    def settle(self, least: int, connected: dict[str, Client]) -> None:
        """Record what enough sites have confirmed, and what they no longer can."""
        for ident, message in list(self.outstanding.items()):
            if len(message.confirmed) >= least:
                self._record(Event.SENT, ident, min(message.confirmed))
            elif len(message.confirmed | (message.asked & connected.keys())) < least:
                self._record(Event.SEND_IN_DOUBT, ident, min(message.asked))

    def give_up(self) -> None:
        for ident, message in list(self.outstanding.items()):
            self._record(Event.SEND_IN_DOUBT, ident, min(message.asked))

    def _record(self, event: Event, ident: str, site: str) -> None:
        self._what.ledger.record(event, self.outstanding.pop(ident).queue, ident, site)
