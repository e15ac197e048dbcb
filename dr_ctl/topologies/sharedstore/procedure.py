"""Everything that an installation with a shared store does for the verbs of its runbooks, row by row."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.engine.operations import ACTIVATE, FAILOVER, FENCE
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.common import recipe as common
from dr_ctl.topologies.common.recipe import Checks, Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.common.verbs import canary, fence, plain, proving, quiesce
from dr_ctl.topologies.sharedstore import activate, checks, waits
from dr_ctl.topologies.sharedstore.checks import BY_BROKER
from dr_ctl.topologies.sharedstore.reading import READS
from dr_ctl.topologies.sharedstore.tools import StoreTools
from dr_ctl.topologies.sharedstore.view import BrokerView

IN_THE_STORE: Final = "{site} holds nothing of its own: what it had lies in the store"
ONE_STORE: Final = "both sites use one store: there is nothing to compare"

PROCEDURE: Final[Procedure[Snapshot[BrokerView], StoreTools]] = Procedure(
    Row("observe", proving.draft_observe, proving.observe),
    Row("check", proving.draft_check, proving.check),
    Row("catch-up", waits.draft_catch_up, waits.catch_up),
    Row("quiesce", classic.draft_quiesce, classic.quiesce, quiesce.undo),
    Row("fence", fence.draft_of_lost, fence.owe, fence.undo, of=(FAILOVER,)),
    Row("fence", fence.draft_by_itself, fence.by_itself, fence.undo_by_itself, of=(FENCE,)),
    Row("fence", fence.draft, fence.act, fence.undo),
    Row("quarantine", plain.draft_nothing(IN_THE_STORE, at_source=True), plain.nothing),
    Row("settle", proving.draft_settle, proving.settle),
    Row("drain", waits.draft_drain, waits.drain),
    Row("verify", proving.draft_verify, proving.verify),
    Row("activate", activate.draft, activate.act),
    Row("probe", classic.draft_probe, proving.probe),
    Row("canary", canary.draft, canary.act, canary.undo),
    Row("clean-canary", canary.draft_clean, canary.clean),
    Row("unfence", fence.draft_unfence, fence.unfence, plain.put_back),
    # How a lost site is taken in again.
    Row("residue", plain.draft_nothing("it holds nothing of its own"), plain.nothing),
    Row("reinstate", waits.draft_reinstate, waits.reinstate, plain.put_back),
    Row("reconcile", plain.draft_nothing(ONE_STORE), plain.nothing),
)
NOT_IN_THE_STORE: Final = (
    "messages that were sent as non-persistent: they lie in their broker's memory and end with it",
)


class StoreRecipe(common.Recipe[BrokerView]):
    """The half that decides."""

    def why_not(self, snapshot: Snapshot[BrokerView], move: Move) -> Sequence[Finding]:
        findings = super().why_not(snapshot, move)
        if move.ask.operation == ACTIVATE and _holds_closed(snapshot, move.target) and not move.sent:
            return [found("DR-STORE-011.target", target=move.target), *findings]
        if move.ask.operation != FAILOVER or not _holds_closed(snapshot, move.source):
            return findings
        return [found("DR-STORE-011.source", source=move.source, target=move.target), *findings]


def _holds_closed(snapshot: Snapshot[BrokerView], site: str) -> bool:
    views = snapshot.views(site)
    return any(view.has_the_store for view in views) and not any(view.open for view in views)


CHECKS: Final = Checks(
    checks.of_move, checks.of_broker, checks.of_both, checks.of_return, checks.nothing_owed, BY_BROKER, ()
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    READS,
    StoreTools,
    "start its clients' connectors, or its broker",
    NOT_IN_THE_STORE,
    decides=StoreRecipe,
)
