"""Everything that a BrokerSync installation does for the verbs of its runbooks, row by row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.patterns import matches
from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.brokersync import acts as own_acts
from dr_ctl.topologies.brokersync import checks, proven
from dr_ctl.topologies.brokersync import drafts as own_drafts
from dr_ctl.topologies.brokersync.access import Observer
from dr_ctl.topologies.brokersync.named import BY_BROKER, BY_PAIR
from dr_ctl.topologies.brokersync.sync.keeper import keeper
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.unproven import unproven
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import drafts as classic
from dr_ctl.topologies.classic.acts import probe, quiesce
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.common.driver import Driver
from dr_ctl.topologies.common.recipe import Checks, Recipe
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.topology import Kind, PairTopology
from dr_ctl.topologies.procedure import Procedure, Row
from dr_ctl.topologies.topology import Keeper, Unproven

PROCEDURE: Final[Procedure[Rules, Seen[BrokerView], SyncTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", own_drafts.shipping.catch_up, own_acts.shipping.catch_up, own_acts.shipping.start),
    Row("quiesce", classic.quiesce, quiesce, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.quarantine.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, acts.fence.undo),
    Row("quarantine", drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", drafts.proving.settle, acts.proving.settle),
    Row("drain", own_drafts.shipping.drain, own_acts.shipping.drain, own_acts.shipping.start),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", drafts.activate.draft, own_acts.activate.act, acts.activate.undo),
    Row("probe", classic.probe, probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", drafts.unfence.draft, acts.unfence.act, acts.put_back),
    Row("restart-link", own_drafts.shipping.restart, own_acts.shipping.restart, own_acts.shipping.start),
    Row("keep-aside", own_drafts.settling.keep_aside, own_acts.settling.keep_aside),
    Row("put-back", own_drafts.settling.put_back, own_acts.settling.put_back),
    # How a lost site is taken in again.
    Row("residue", drafts.fence.of_returned, own_acts.reinstate.residue),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, acts.put_back),
    Row("reconcile", own_drafts.reinstate.reconcile, own_acts.reinstate.reconcile),
)
NOT_COPIED: Final = (
    "messages that wait in a broker's scheduler for their time: they are copied when they are sent on",
    "topics and durable subscriptions, dead letters: each site has its own",
)


class SyncTopology(PairTopology[BrokerView]):
    """Implements `WithKeeper` too."""

    def __init__(
        self, observer: Observer, recipe: Recipe[BrokerView], driver: Callable[[Sender], Driver[BrokerView]]
    ) -> None:
        super().__init__(observer, recipe, driver)
        self._brokers = observer

    def keeper(self, primary: str, remembered: Mapping[str, Any]) -> Keeper:
        known = proven.for_agent(self._brokers.documents, primary, remembered)
        return keeper(self._brokers, primary, known)

    def unproven(self, waiting: str, pattern: str | None) -> Sequence[Unproven]:
        serving = next(site for site in self._brokers.brokers if site != waiting)
        found = []
        for pair, there in self._brokers.brokers[waiting].items():
            way = self._brokers.brokers[serving][pair], there
            views = way[0].look(), there.look()
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


CHECKS: Final = Checks(
    checks.of_move,
    checks.of_broker,
    checks.of_both,
    checks.of_return,
    checks.nothing_owed,
    BY_BROKER,
    BY_PAIR,
    of_opening=checks.of_opening,
)
open_: Final = Kind(
    PROCEDURE, CHECKS, Observer, SyncTools, "start its clients' connectors", NOT_COPIED, made=SyncTopology
)
