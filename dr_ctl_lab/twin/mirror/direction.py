"""One direction of a mirror: shipping, delays and cuts.

An event stays in the outflow until the peer has confirmed it. After a break, unconfirmed events are shipped again, and
the peer recognises those that it has applied.
"""

from collections import deque
from typing import Final

from dr_ctl_lab.twin.direction import BATCH, REDIAL_S, Direction, Mode
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Event

CREDITS: Final = 1000


class MirrorDirection(Direction[MirrorBroker]):
    def __init__(self, source: MirrorBroker, target: MirrorBroker, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        self._shipped: deque[tuple[float, Event]] = deque()
        self._confirmations: deque[float] = deque()
        self._redial_s = 0.0
        self._half_open = False  # accepted, but without a handshake
        self._breaks = 0
        source.link.port, *alternates = [acceptors["mirror"].port for acceptors in target.node_acceptors]
        source.link.alternates, source.link.peer_node = tuple(alternates), target.node

    def _peer_reachable(self) -> bool:
        link = self.source.link
        return super()._peer_reachable() and self.target.acceptors["mirror"].port in (link.port, *link.alternates)

    def _change(self, mode: Mode) -> None:
        if mode is Mode.REFUSE or (mode is Mode.OPEN and self._half_open):
            self._drop()
        self._redial_s = 0.0

    def _step(self) -> float | None:
        link, now_s = self.source.link, self.source.clock.now_s()
        if not (self.source.alive and link.started):
            self._drop()
            self.target.peer_connected = False
            return self.source.retry_pending() if self.source.alive else None
        retry_s = self.source.retry_pending()
        waits = [] if retry_s is None else [retry_s]
        if self._breaks != link.breaks:
            self._breaks = link.breaks
            self._drop()  # stopped and started between two steps
        if link.connected and not self._half_open and not self._peer_reachable():
            self._drop()
            self._redial_s = now_s + REDIAL_S
        if not link.connected and not self._half_open:
            if now_s >= self._redial_s:
                self._dial(now_s)
            if not link.connected:
                waits.append(max(0.0, self._redial_s - now_s))
        if link.connected and not link.attached and not self._half_open and not self.target.lets_mirror_in(link.name):
            self._drop()
            self._redial_s = now_s + REDIAL_S
        if link.connected and not link.attached and not self._half_open and not self.target.frozen:
            link.attached = link.knows_peer = self.target.peer_connected = True
        if link.attached and not self.source.frozen:
            waits += self._carry(now_s)
        return min(waits, default=None)

    def _dial(self, now_s: float) -> None:
        self._redial_s = now_s + REDIAL_S
        if self._peer_reachable() and self.mode is not Mode.HANG:
            self.source.link.connected = True
        elif self.mode in (Mode.HANG, Mode.ACCEPT):
            # Without a handshake the link is flagged as connected, and ships nothing.
            self.source.link.connected = self._half_open = True

    def _drop(self) -> None:
        self._shipped.clear()
        self._confirmations.clear()
        self._half_open = False
        link = self.source.link
        if link.connected:
            self.target.peer_connected = False
        link.connected = link.attached = False
        self.source.outflow.under_way = 0

    def _carry(self, now_s: float) -> list[float]:
        outflow = self.source.outflow
        while len(self._shipped) + len(self._confirmations) < CREDITS and (event := outflow.next()) is not None:
            self._shipped.append((now_s + self.delay_s, event))
        if self.mode is Mode.HANG or self.target.frozen:
            return []
        for _ in range(BATCH):
            if not self._shipped or self._shipped[0][0] > now_s:
                break
            self.target.apply(self._shipped.popleft()[1])
            self._confirmations.append(now_s + self.delay_s)
        while self._confirmations and self._confirmations[0] <= now_s:
            self._confirmations.popleft()
            outflow.done()
        due = [self._shipped[0][0]] if self._shipped else []
        due += [self._confirmations[0]] if self._confirmations else []
        return [max(0.0, due_s - now_s) for due_s in due]
