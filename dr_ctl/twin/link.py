"""The way from one broker to its peer: what leaves the outflow, when it arrives, and what a cut does to it.

An event stays in the outflow until the peer's confirmation is back. What was applied there and not confirmed is
shipped again after a break, and recognised there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from enum import Enum
from typing import Final

from dr_ctl.twin.broker import Broker
from dr_ctl.twin.messages import Event

REDIAL_S: Final = 0.1
CREDITS: Final = 1000
AT_ONCE: Final = 50


class Mode(Enum):
    """What the way between the brokers does: `accept` takes a connection for a peer that refuses, as balancers do."""

    OPEN = "open"
    REFUSE = "refuse"
    HANG = "hang"
    ACCEPT = "accept"


class Way:
    """One direction of a pair; a thread of its own carries what there is."""

    def __init__(self, source: Broker, target: Broker, *, delay_s: float = 0.0) -> None:
        self.source, self.target = source, target
        self.mode = Mode.OPEN
        self.delay_s = delay_s
        self._out: deque[tuple[float, Event]] = deque()
        self._back: deque[float] = deque()
        self._redial_s = 0.0
        self._held = False  # a connection that was accepted and never comes to life
        self._breaks = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"link {source.name}-{target.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        with self.source.lock:
            self._over = True
            self.source.changed.notify_all()
        self._thread.join()

    def set(self, mode: Mode) -> None:
        """Change what the way does; `open` resets what was held, so that the source dials anew at once."""
        with self.source.lock:
            if mode is Mode.REFUSE or (mode is Mode.OPEN and self._held):
                self._drop()
            self.mode = mode
            self._redial_s = 0.0
            self.source.changed.notify_all()

    def _run(self) -> None:
        changed = self.source.changed
        with changed:
            while not self._over:
                wait_s = self._turn()
                changed.wait(wait_s)

    def _turn(self) -> float | None:
        """Do what is due; seconds until something else is, None where only a change can bring it."""
        link, now = self.source.link, time.monotonic()
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
        if link.connected and not link.attached and not self._held and not self.target.frozen:
            link.attached = self.target.peer_connected = True
        if link.attached and not self.source.frozen:
            waits += self._carry(now)
        return min(waits, default=None)

    def _peer_there(self) -> bool:
        return self.target.alive and self.target.acceptors["mirror"].started and self.mode is not Mode.REFUSE

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
