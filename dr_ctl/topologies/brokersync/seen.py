"""The result of a look at both sites of a BrokerSync pair: what nothing proves is told whenever somebody looks."""

from collections.abc import Iterator, Sequence

from dr_ctl.core.model import Finding
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.findings import COPIES_UNPROVEN
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common import seen


class Looked(seen.Seen[BrokerView]):
    kept_aside = (
        "Where they were never done: `dr-ctl sync --settle --put-back --site {} --reason TEXT` lets clients have them. "
        "Where they were: purge that queue in the console."
    )

    def findings(self) -> Sequence[Finding]:
        return [*seen.Seen.findings(self), *self._unproven()]

    def _unproven(self) -> Iterator[Finding]:
        """Copies at a waiting site that the counters of the serving one do not cover, queue by queue."""
        for here in self._all():
            there = self.peer(here)
            if there is None or not here.open or there.open:
                continue
            for each, copies, why in parity.unproven(here, there, Queues(), self.moved.get(here.pair, {})):
                text = (
                    f"{copies} message(s) of {each.queue} lie at {there.site} beyond those at {here.site}: so many may "
                    f"come twice after a move; nothing proves that they were consumed: {why}"
                )
                remedy = f"`dr-ctl sync --settle --site {there.site} --dry-run` lists them by id."
                yield COPIES_UNPROVEN(text, remedy)
