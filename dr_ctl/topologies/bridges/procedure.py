"""Everything that an installation of diverts and bridges does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.bridges import activate, checks, fence, reinstate, shipping, trim
from dr_ctl.topologies.bridges.checks import BY_BROKER, BY_PAIR
from dr_ctl.topologies.bridges.reading import READS
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.failover import nothing_owed
from dr_ctl.topologies.common.recipe import Checks, Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.common.verbs import canary, plain, proving, quarantine, quiesce

PROCEDURE: Final[Procedure[Snapshot[BrokerView], BridgesTools]] = Procedure(
    Row("observe", proving.draft_observe, proving.observe),
    Row("check", proving.draft_check, proving.check),
    Row("catch-up", shipping.draft_catch_up, shipping.catch_up, shipping.start),
    Row("quiesce", quiesce.draft, quiesce.act, quiesce.undo),
    Row("fence", fence.draft_of_lost, fence.owe, fence.undo, of=(FAILOVER,)),
    Row("fence", fence.draft_by_itself, fence.by_itself, fence.undo_by_itself, of=(FENCE,)),
    Row("fence", fence.draft, fence.act, fence.undo),
    Row("quarantine", quarantine.draft, quarantine.act, quarantine.undo),
    Row("settle", proving.draft_settle, proving.settle),
    Row("drain", shipping.draft_drain, shipping.drain, shipping.start),
    Row("verify", proving.draft_verify, proving.verify),
    Row("activate", activate.draft, activate.act, activate.undo),
    Row("probe", proving.draft_probe, proving.probe),
    Row("canary", canary.draft, canary.act, canary.undo),
    Row("clean-canary", canary.draft_clean, canary.clean),
    Row("unfence", fence.draft_unfence, fence.unfence, plain.put_back),
    Row("restart-link", shipping.draft_restart, shipping.restart, shipping.start),
    Row("trim", trim.draft, trim.act),
    # How a lost site is taken in again.
    Row("residue", fence.draft_of_returned, fence.residue),
    Row("reinstate", reinstate.draft, reinstate.act, reinstate.undo),
    Row("reconcile", reinstate.draft_reconcile, reinstate.reconcile),
)
CHECKS: Final = Checks(
    checks.of_move, checks.of_broker, checks.of_both, checks.of_return, nothing_owed, BY_BROKER, BY_PAIR
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    READS,
    BridgesTools,
    "give the clients' roles their rights at each queue's address back",
    moves_parts=True,
)
