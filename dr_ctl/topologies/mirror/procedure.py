"""Everything that a mirrored installation does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.common.failover import nothing_owed
from dr_ctl.topologies.common.recipe import Checks, Procedure, Row
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.common.verbs import activate, canary, fence, plain, proving, quarantine, quiesce
from dr_ctl.topologies.mirror import checks, reconcile, reinstate, shipping
from dr_ctl.topologies.mirror.checks import BY_BROKER, BY_PAIR
from dr_ctl.topologies.mirror.parity import ORIGINS_UP_TO
from dr_ctl.topologies.mirror.reading import READS
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import MirrorSnapshot

PROCEDURE: Final[Procedure[MirrorSnapshot, MirrorTools]] = Procedure(
    Row("observe", proving.draft_observe, proving.observe),
    Row("check", proving.draft_check, proving.check),
    Row("catch-up", shipping.draft_catch_up, shipping.catch_up, shipping.start),
    Row("quiesce", quiesce.draft, quiesce.act, quiesce.undo),
    Row("fence", fence.draft_of_lost, fence.owe, quarantine.undo, of=(FAILOVER,)),
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
    # How a lost site is taken in again.
    Row("residue", fence.draft_of_returned, reinstate.count_residue),
    Row("reinstate", reinstate.draft, reinstate.act, reinstate.undo),
    Row("reconcile", reconcile.draft, reconcile.act),
)
BY_COUNT: Final = (
    f"whether messages are the same, and not only as many: in queues deeper than {ORIGINS_UP_TO}, beside delayed "
    "messages, and where a broker does not show a message's origin"
)
CHECKS: Final = Checks(
    checks.of_move,
    checks.of_broker,
    checks.of_both,
    checks.of_return,
    nothing_owed,
    BY_BROKER,
    BY_PAIR,
    checks.of_opening,
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    READS,
    MirrorTools,
    "start its client acceptors",
    cannot_tell=(BY_COUNT,),
)
