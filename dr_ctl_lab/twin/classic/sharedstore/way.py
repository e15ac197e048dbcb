"""The own work of one of two brokers that share a store, without a link between them."""

from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.way import Mode, Way


class SharedStoreWay(Way[SharedStoreBroker]):
    """Lets the source look for its lock."""

    def __init__(self, source: SharedStoreBroker, target: SharedStoreBroker, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        if source.peer is None:
            source.share(target)

    def _change(self, mode: Mode) -> None:
        """Do nothing: no link exists to cut."""

    def _turn(self) -> float | None:
        now_s = self.source.clock.now_s()
        waits = self.source.work(now_s)
        return max(0.0, min(waits) - now_s)
