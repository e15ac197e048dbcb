"""The waiting broker for the agent: deletes copies by id, and browses what is there."""

from typing import Final

from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.topologies.brokersync.sync import counting
from dr_ctl.topologies.brokersync.sync.browsing import Browser
from dr_ctl.topologies.brokersync.sync.end import End
from dr_ctl.topologies.brokersync.sync.ports import Count, Listed, Opened, There
from dr_ctl.topologies.common.consumed import Consumed

REMOVE_S: Final = 60.0


class RealStandby:
    """Implements `Standby`."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._browser = Browser(end.gate, lambda queue: counting.count(end.reader(), end.broker, queue))

    def is_open(self) -> bool:
        return counting.is_open(self._end)

    def counts(self) -> There:
        return counting.counts(self._end)

    def remove(self, queue: str, consumed: Consumed) -> int:
        if counting.is_open(self._end):
            raise Opened(f"{self._end.site} lets clients in")
        change = counting.removal(self._end.broker, queue, consumed)
        (answer,) = self._end.changer().change([change], timeout_s=REMOVE_S)
        return 0 if isinstance(answer.error, NoSuchBean) else int(answer.value())

    def listed(self, queue: str, before: Count | None) -> Listed:
        return self._browser.listed(queue, before)

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        return self._browser.listed(self._end.copy(queue), before)

    def close(self) -> None:
        self._browser.close()
        self._end.close()
