"""The bridges of one broker at work: when they are connected, what they carry to the peer, and what comes back."""

from typing import TypeVar

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged import BridgedBroker
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.way import AT_ONCE, REDIAL_S, Mode, Way

B = TypeVar("B", bound=BridgedBroker)


class BridgedWay(Way[B]):
    """A direction of a pair that bridges join, and the source's own work."""

    def __init__(self, source: B, target: B, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        self._redial_s = 0.0
        self._cuts = 0

    def _lets_in(self, bridge: Bridge) -> bool:
        """Say whether the peer knows the bridge's login; a refusal has its effects before False is returned."""
        del bridge
        return True

    def _takes(self, bridge: Bridge, message: Message) -> bool:
        """Say whether the peer lets the bridge send that; False after what a refusal does."""
        del bridge, message
        return True

    def _change(self, mode: Mode) -> None:
        if mode is Mode.REFUSE:
            self._drop()
        self._redial_s = 0.0

    def _drop(self) -> None:
        for bridge in self.source.shipping:
            bridge.drop()
        self.target.incoming = 0

    def _turn(self) -> float | None:
        now_s = self.source.clock.now_s()
        if not self.source.alive:
            self.target.incoming = 0
            return None
        if self._cuts != self.target.cuts or not self._peer_there():
            self._cuts = self.target.cuts
            self._drop()
        due: list[float] = []
        if not self.source.frozen:
            # First: nobody wakes this thread for what it sets going itself.
            due += self.source.work(now_s)
            due += self._connect(now_s)
            self._carry(now_s)
        due += [at for bridge in self.source.shipping for at in bridge.due_s()] if self._carries() else []
        return max(0.0, min(due) - now_s) if due else None

    def _carries(self) -> bool:
        return self.mode is not Mode.HANG and not self.source.frozen and not self.target.frozen

    def _connect(self, now_s: float) -> list[float]:
        """Started bridges dial until they are connected. A connection that is only held does not count."""
        waiting = [bridge for bridge in self.source.shipping if bridge.started and not bridge.connected]
        if waiting and now_s >= self._redial_s:
            self._redial_s = now_s + REDIAL_S
            if self._peer_there() and self.mode is Mode.OPEN and not self.target.frozen:
                for bridge in waiting:
                    if self._lets_in(bridge):
                        bridge.delay_s = self.delay_s
                        bridge.connect()
                waiting = []
        self.target.incoming = sum(bridge.connected for bridge in self.source.shipping)
        return [self._redial_s] if waiting else []

    def _carry(self, now_s: float) -> None:
        if not self._carries():
            return
        for bridge in list(self.source.shipping):
            bridge.delay_s = self.delay_s
            for _ in range(AT_ONCE):
                if not bridge.held or bridge.held[0][0] > now_s:
                    break
                if not self._takes(bridge, bridge.held[0][1]):
                    return
                message = bridge.arrived(now_s + self.delay_s + self.source.confirm_s)
                self.target.accept(bridge.address, bridge.outgoing(message), self.source.node)
            bridge.confirm(now_s)
