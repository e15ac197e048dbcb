"""The link of a mirror at work: shipping, delays, and cuts.

An event stays in the outflow until the peer's confirmation is back. An event applied there and not confirmed is shipped
again after a break, and recognised there.
"""

from collections import deque
from typing import Final

from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Event
from dr_ctl_lab.twin.way import AT_ONCE, REDIAL_S, Mode, Way

CREDITS: Final = 1000


class MirrorWay(Way[MirrorBroker]):
    def __init__(self, source: MirrorBroker, target: MirrorBroker, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        self._out: deque[tuple[float, Event]] = deque()
        self._back: deque[float] = deque()
        self._redial_s = 0.0
        self._held = False  # a connection that was accepted and never comes to life
        self._breaks = 0
        source.link.port, *others = [place["mirror"].port for place in target.places]
        source.link.alternates, source.link.peer_node = tuple(others), target.node

    def _peer_there(self) -> bool:
        link = self.source.link
        return super()._peer_there() and self.target.acceptors["mirror"].port in (link.port, *link.alternates)

    def _change(self, mode: Mode) -> None:
        if mode is Mode.REFUSE or (mode is Mode.OPEN and self._held):
            self._drop()
        self._redial_s = 0.0

    def _turn(self) -> float | None:
        link, now = self.source.link, self.source.clock.now_s()
        if not (self.source.alive and link.started):
            self._drop()
            self.target.peer_connected = False
            return self.source.retry_pending() if self.source.alive else None
        retry_s = self.source.retry_pending()
        waits = [] if retry_s is None else [retry_s]
        if self._breaks != link.breaks:
            self._breaks = link.breaks
            self._drop()  # stopped and started between two turns
        if link.connected and not self._held and not self._peer_there():
            self._drop()
            self._redial_s = now + REDIAL_S
        if not link.connected and not self._held:
            if now >= self._redial_s:
                self._dial(now)
            if not link.connected:
                waits.append(max(0.0, self._redial_s - now))
        if link.connected and not link.attached and not self._held and not self.target.lets_mirror_in(link.name):
            self._drop()
            self._redial_s = now + REDIAL_S
        if link.connected and not link.attached and not self._held and not self.target.frozen:
            link.attached = link.knows_peer = self.target.peer_connected = True
        if link.attached and not self.source.frozen:
            waits += self._carry(now)
        return min(waits, default=None)

    def _dial(self, now: float) -> None:
        self._redial_s = now + REDIAL_S
        if self._peer_there() and self.mode is not Mode.HANG:
            self.source.link.connected = True
        elif self.mode in (Mode.HANG, Mode.ACCEPT):
            # Accepted, and no handshake: connected by its flag, and nothing is shipped.
            self.source.link.connected = self._held = True

    def _drop(self) -> None:
        self._out.clear()
        self._back.clear()
        self._held = False
        link = self.source.link
        if link.connected:
            self.target.peer_connected = False
        link.connected = link.attached = False
        self.source.outflow.under_way = 0

    def _carry(self, now: float) -> list[float]:
        outflow = self.source.outflow
        while len(self._out) + len(self._back) < CREDITS and (event := outflow.next()) is not None:
            self._out.append((now + self.delay_s, event))
        if self.mode is Mode.HANG or self.target.frozen:
            return []
        for _ in range(AT_ONCE):
            if not self._out or self._out[0][0] > now:
                break
            self.target.apply(self._out.popleft()[1])
            self._back.append(now + self.delay_s)
        while self._back and self._back[0] <= now:
            self._back.popleft()
            outflow.done()
        due = [self._out[0][0]] if self._out else []
        due += [self._back[0]] if self._back else []
        return [max(0.0, at - now) for at in due]
