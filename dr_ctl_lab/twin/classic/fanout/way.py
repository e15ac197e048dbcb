"""The own work of one of two brokers that do not know each other."""

from dr_ctl_lab.twin.classic.fanout.broker import FanoutBroker
from dr_ctl_lab.twin.way import Mode, Way


class FanoutWay(Way[FanoutBroker]):
    """Lets the source look for what has expired, and knows whether producers reach the other one."""

    def _change(self, mode: Mode) -> None:
        """No link exists to cut: producers find one site only."""

    def _turn(self) -> float | None:
        self.source.both = self._peer_there()
        now_s = self.source.clock.now_s()
        return max(0.0, min(self.source.work(now_s)) - now_s)
