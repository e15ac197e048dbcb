"""The periodic work of a broker with a shared store; there is no link."""

from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.direction import Direction, Mode


class SharedStoreDirection(Direction[SharedStoreBroker]):
    """Lets the source try for the lock."""

    def __init__(self, source: SharedStoreBroker, target: SharedStoreBroker, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        if source.peer is None:
            source.share(target)

    def _change(self, mode: Mode) -> None:
        """Do nothing: there is no link."""

    def _step(self) -> float | None:
        now_s = self.source.clock.now_s()
        waits = self.source.work(now_s)
        return max(0.0, min(waits) - now_s)
