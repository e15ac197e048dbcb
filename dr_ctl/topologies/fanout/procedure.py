"""Everything that a fan-out installation does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.common.recipe import Checks, Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.common.verbs import activate, canary, fence, plain, proving, quarantine, quiesce
from dr_ctl.topologies.fanout import checks, reconciling, reinstate
from dr_ctl.topologies.fanout.checks import BY_BROKER, BY_PAIR
from dr_ctl.topologies.fanout.tools import READS, FanoutTools
from dr_ctl.topologies.fanout.view import BrokerView

PROCEDURE: Final[Procedure[Snapshot[BrokerView], FanoutTools]] = Procedure(
    Row("observe", proving.draft_observe, proving.observe),
    Row("check", proving.draft_check, proving.check),
    Row("catch-up", reconciling.draft_catch_up, reconciling.catch_up),
    Row("quiesce", classic.draft_quiesce, classic.quiesce, quiesce.undo),
    Row("fence", fence.draft_of_lost, fence.owe, fence.undo, of=(FAILOVER,)),
    Row("fence", fence.draft_by_itself, fence.by_itself, fence.undo_by_itself, of=(FENCE,)),
    Row("fence", fence.draft, fence.act, fence.undo),
    Row("quarantine", quarantine.draft, quarantine.act, quarantine.undo),
    Row("settle", reconciling.draft_settle, reconciling.settle),
    Row("drain", reconciling.draft_drain, reconciling.drain),
    Row("verify", proving.draft_verify, proving.verify),
    Row("activate", activate.draft, activate.act, activate.undo),
    Row("probe", classic.draft_probe, classic.probe),
    Row("canary", canary.draft, canary.act, canary.undo),
    Row("clean-canary", canary.draft_clean, canary.clean),
    Row("unfence", fence.draft_unfence, fence.unfence, plain.put_back),
    Row("trim", reconciling.draft_trim, reconciling.trim, reconciling.undo_trim),
    # How a lost site is taken in again.
    Row("residue", fence.draft_of_returned, reinstate.residue),
    Row("reinstate", reinstate.draft, reinstate.act, plain.put_back),
    Row("reconcile", reinstate.draft_reconcile, reinstate.reconcile),
)
NOT_WRITTEN_TWICE: Final = (
    "what a client sends by the clients' connector, and not as a producer to both sites",
    "topics and durable subscriptions, dead letters: each site has its own",
)
CHECKS: Final = Checks(
    checks.of_move,
    checks.of_broker,
    checks.of_both,
    checks.of_return,
    checks.nothing_owed,
    BY_BROKER,
    BY_PAIR,
    of_failover=checks.of_failover,
)
open_: Final = Kind(PROCEDURE, CHECKS, READS, FanoutTools, "start its clients' connectors", NOT_WRITTEN_TWICE)
