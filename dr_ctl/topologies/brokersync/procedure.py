"""Everything that a BrokerSync installation does for the verbs of its runbooks, row by row."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.notation import matches
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Move, Outcome, StepContext
from dr_ctl.jolokia.client import READ_S
from dr_ctl.topologies.brokersync import proven, reinstate, shipping
from dr_ctl.topologies.brokersync.checks import CHECKS
from dr_ctl.topologies.brokersync.listing import unproven
from dr_ctl.topologies.brokersync.reading import READS, Observer
from dr_ctl.topologies.brokersync.sync.pair import keeper
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.common.recipe import Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import COMMON, Kind, PairTopology
from dr_ctl.topologies.common.verbs import activate, fence, quiesce
from dr_ctl.topologies.topology import Keeper, Unproven

NOT_COPIED: Final = (
    "messages that wait in a broker's scheduler for their time: they are copied when they are sent on",
    "topics and durable subscriptions, dead letters: each site has its own",
)


def _activate(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """How the counters stand is noted before clients are let in, since an agent worked there."""
    for access in tools.observer.at(move.target):
        if not access.open_listeners(timeout_s=READ_S):
            access.note_opening()
    return activate.act(tools, step, move, context)


PROCEDURE: Final[Procedure[Snapshot[BrokerView], SyncTools]] = {
    **COMMON,
    "catch-up": Row(shipping.draft_catch_up, shipping.catch_up, shipping.UNDO),
    "quiesce": Row(classic.draft_quiesce, classic.quiesce, quiesce.UNDO),
    "drain": Row(shipping.draft_drain, shipping.drain, shipping.UNDO),
    "activate": Row(activate.draft, _activate, activate.UNDO),
    "probe": Row(classic.draft_probe, classic.probe),
    "restart-link": Row(shipping.draft_restart, shipping.restart, shipping.UNDO),
    "keep-aside": Row(reinstate.draft_keep_aside, reinstate.keep_aside),
    "put-back": Row(reinstate.draft_put_back, reinstate.put_back),
    # How a lost site is taken in again.
    "residue": Row(fence.draft_of_returned, reinstate.residue),
    "reinstate": Row(reinstate.draft, reinstate.act, reinstate.UNDO),
    "reconcile": Row(reinstate.draft_reconcile, reinstate.reconcile),
}


class SyncTopology(PairTopology[BrokerView]):
    _observer: Observer

    def keeper(self, primary: str, remembered: Mapping[str, Any]) -> Keeper:
        known = proven.for_agent(self._observer.documents, primary, remembered)
        return keeper(self._observer, primary, known)

    def unproven(self, waiting: str, pattern: str | None) -> Sequence[Unproven]:
        serving = next(site for site in self._observer.brokers if site != waiting)
        found = []
        for pair, there in self._observer.brokers[waiting].items():
            way = self._observer.brokers[serving][pair], there
            views = way[0].read(), there.read()
            for name, queue in views[1].business.items():
                if (
                    not queue.depth
                    or name not in views[0].copying
                    or not (pattern is None or matches((pattern,), name))
                ):
                    continue
                try:
                    found.append(Unproven(pair, name, sorted(unproven(way, views, name))))
                except NotWhole as error:
                    found.append(Unproven(pair, name, (), str(error)))
        return [each for each in found if each.ids or each.why_not is not None]


open_: Final = Kind(PROCEDURE, CHECKS, READS, SyncTools, "start its clients' connectors", NOT_COPIED, made=SyncTopology)
