"""The waiting broker for the agent: deletes copies by id, and browses what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.jolokia.errors import NoSuchBean, PolicyRefused
from dr_ctl.topologies.brokersync.sync import counting
from dr_ctl.topologies.brokersync.sync.browsing import Browser
from dr_ctl.topologies.brokersync.sync.consuming import picked
from dr_ctl.topologies.brokersync.sync.end import End
from dr_ctl.topologies.brokersync.sync.ports import Browsed

REMOVE_S: Final = 60.0


class RealStandby:
    """Implements `Standby`. Deletes over the management, and where its policy keeps that for people, as a consumer:
    consuming is what the agent's login is for."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._browser = Browser(end.gate, self._depth)
        self.refused: str | None = None

    def is_open(self) -> bool:
        return counting.is_open(self._end)

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        if self.refused is None:
            change = counting.removal(self._end.broker, queue, ids)
            (answer,) = self._end.changer().change([change], timeout_s=REMOVE_S)
            if isinstance(answer.error, NoSuchBean):
                return 0
            if not isinstance(answer.error, PolicyRefused):
                return int(answer.value())
            self.refused = str(answer.error)
        depth = self._depth(queue)
        return picked(self._end.gate(), queue, frozenset(ids), depth) if depth else 0

    def browse(self, queue: str) -> Browsed:
        return self._browser.ids(queue)

    def unshipped(self, queue: str) -> Browsed:
        return self._browser.ids(self._end.copy(queue))

    def _depth(self, queue: str) -> int | None:
        return counting.depth(self._end.reader(), self._end.broker, queue)

    def close(self) -> None:
        self._end.close()
