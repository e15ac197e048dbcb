"""The bridges of one broker: their connections, messages and confirmations."""

from typing import TypeVar

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged import BridgedBroker
from dr_ctl_lab.twin.direction import BATCH, REDIAL_S, Direction, Mode
from dr_ctl_lab.twin.messages import Message

B = TypeVar("B", bound=BridgedBroker)


class BridgedDirection(Direction[B]):
    """One direction of a pair that is joined by bridges; does the source's periodic work too."""

    def __init__(self, source: B, target: B, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        self._redial_s = 0.0
        self._cuts = 0

    def _accepts_login(self, bridge: Bridge) -> bool:
        """Say whether the peer accepts the bridge's login; apply the effects of a refusal."""
        del bridge
        return True

    def _accepts_message(self, bridge: Bridge, message: Message) -> bool:
        """Say whether the peer lets the bridge send this message; apply the effects of a refusal."""
        del bridge, message
        return True

    def _change(self, mode: Mode) -> None:
        if mode is Mode.REFUSE:
            self._drop()
        self._redial_s = 0.0

    def _drop(self) -> None:
        for bridge in self.source.shipping_bridges:
            bridge.drop()
        self.target.incoming = 0

    def _step(self) -> float | None:
        now_s = self.source.clock.now_s()
        if not self.source.alive:
            self.target.incoming = 0
            return None
        if self._cuts != self.target.cuts or not self._peer_reachable():
            self._cuts = self.target.cuts
            self._drop()
        due: list[float] = []
        if not self.source.frozen:
            # First, because this thread is not notified of its own changes.
            due += self.source.work(now_s)
            due += self._connect(now_s)
            self._carry(now_s)
        due += (
            [due_s for bridge in self.source.shipping_bridges for due_s in bridge.due_s()] if self._can_carry() else []
        )
        return max(0.0, min(due) - now_s) if due else None

    def _can_carry(self) -> bool:
        return self.mode is not Mode.HANG and not self.source.frozen and not self.target.frozen

    def _connect(self, now_s: float) -> list[float]:
        """Connect started bridges; retry while the link is not open."""
        waiting = [bridge for bridge in self.source.shipping_bridges if bridge.started and not bridge.connected]
        if waiting and now_s >= self._redial_s:
            self._redial_s = now_s + REDIAL_S
            if self._peer_reachable() and self.mode is Mode.OPEN and not self.target.frozen:
                for bridge in waiting:
                    if self._accepts_login(bridge):
                        bridge.delay_s = self.delay_s
                        bridge.connect()
                waiting = []
        self.target.incoming = sum(bridge.connected for bridge in self.source.shipping_bridges)
        return [self._redial_s] if waiting else []

    def _carry(self, now_s: float) -> None:
        if not self._can_carry():
            return
        for bridge in list(self.source.shipping_bridges):
            bridge.delay_s = self.delay_s
            for _ in range(BATCH):
                if not bridge.outbound or bridge.outbound[0][0] > now_s:
                    break
                if not self._accepts_message(bridge, bridge.outbound[0][1]):
                    return
                message = bridge.hand_over(now_s + self.delay_s + self.source.confirm_delay_s)
                self.target.accept(bridge.address, bridge.outgoing(message), self.source.node)
            bridge.confirm(now_s)
