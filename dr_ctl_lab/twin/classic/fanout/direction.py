"""The periodic work of a broker without a link."""

from dr_ctl_lab.twin.classic.fanout.broker import FanoutBroker
from dr_ctl_lab.twin.direction import Direction, Mode


class FanoutDirection(Direction[FanoutBroker]):
    """Moves expired messages of the source, and notes whether producers reach the target."""

    def _change(self, mode: Mode) -> None:
        """Do nothing: there is no link. Producers cannot reach the target then."""

    def _step(self) -> float | None:
        self.source.producers_reach_peer = self._peer_reachable()
        now_s = self.source.clock.now_s()
        return max(0.0, min(self.source.work(now_s)) - now_s)
