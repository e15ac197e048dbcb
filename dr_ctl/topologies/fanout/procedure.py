"""Everything that a fan-out installation does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.common.recipe import Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import COMMON, Kind
from dr_ctl.topologies.common.verbs import fence, quiesce
from dr_ctl.topologies.fanout import reconciling
from dr_ctl.topologies.fanout.checks import CHECKS
from dr_ctl.topologies.fanout.tools import READS, FanoutTools
from dr_ctl.topologies.fanout.view import BrokerView

PROCEDURE: Final[Procedure[Snapshot[BrokerView], FanoutTools]] = {
    **COMMON,
    "catch-up": Row(reconciling.draft_catch_up, reconciling.catch_up),
    "quiesce": Row(classic.draft_quiesce, classic.quiesce, quiesce.UNDO),
    "settle": Row(reconciling.draft_settle, reconciling.settle),
    "drain": Row(reconciling.draft_drain, reconciling.drain),
    "probe": Row(classic.draft_probe, classic.probe),
    "trim": Row(reconciling.draft_trim, reconciling.trim, reconciling.UNDO_TRIM),
    # How a lost site is taken in again.
    "residue": Row(fence.draft_of_returned, reconciling.residue),
    "reinstate": Row(reconciling.draft_reinstate, reconciling.reinstate, reconciling.UNDO_REINSTATE),
    "reconcile": Row(reconciling.draft_reconcile, reconciling.reconcile),
}
NOT_WRITTEN_TWICE: Final = (
    "what a client sends by the clients' connector, and not as a producer to both sites",
    "topics and durable subscriptions, dead letters: each site has its own",
)
open_: Final = Kind(PROCEDURE, CHECKS, READS, FanoutTools, "start its clients' connectors", NOT_WRITTEN_TWICE)
