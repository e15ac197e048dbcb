"""Everything that an installation with a shared store does for the verbs of its runbooks, row by row."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.engine.operations import ACTIVATE, FAILOVER
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.common import recipe as common
from dr_ctl.topologies.common.recipe import Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import COMMON, Kind
from dr_ctl.topologies.common.verbs import plain, proving, quiesce
from dr_ctl.topologies.common.wants import SOURCE, TARGET, planning
from dr_ctl.topologies.sharedstore import activate, tools
from dr_ctl.topologies.sharedstore.checks import CHECKS
from dr_ctl.topologies.sharedstore.reading import READS
from dr_ctl.topologies.sharedstore.tools import StoreTools
from dr_ctl.topologies.sharedstore.view import BrokerView

IN_THE_STORE: Final = "{source} holds nothing of its own: what it had lies in the store"
ONE_STORE: Final = "both sites use one store: there is nothing to compare"

PROCEDURE: Final[Procedure[Snapshot[BrokerView], StoreTools]] = {
    **COMMON,
    "catch-up": Row(tools.draft_catch_up, tools.catch_up),
    "quiesce": Row(classic.draft_quiesce, classic.quiesce, quiesce.UNDO),
    "quarantine": Row(planning(SOURCE, IN_THE_STORE), plain.nothing),
    "drain": Row(tools.draft_drain, tools.drain),
    "activate": Row(activate.draft, activate.act),
    "probe": Row(classic.draft_probe, proving.probe),
    # How a lost site is taken in again.
    "residue": Row(planning(TARGET, "it holds nothing of its own"), plain.nothing),
    "reinstate": Row(tools.draft_reinstate, tools.reinstate, tools.UNDO),
    "reconcile": Row(planning(TARGET, ONE_STORE), plain.nothing),
}
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


open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    READS,
    StoreTools,
    "start its clients' connectors, or its broker",
    NOT_IN_THE_STORE,
    decides=StoreRecipe,
)
