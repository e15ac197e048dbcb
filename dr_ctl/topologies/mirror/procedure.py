"""Everything that a mirrored installation does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.failover import nothing_owed
from dr_ctl.topologies.common.recipe import Checks
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.mirror import checks, reconcile, reinstate, shipping
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.checks import BY_BROKER, BY_PAIR
from dr_ctl.topologies.mirror.parity import ORIGINS_UP_TO
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import MirrorSeen
from dr_ctl.topologies.procedure import Procedure, Row

PROCEDURE: Final[Procedure[Rules, MirrorSeen, MirrorTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", shipping.draft_catch_up, shipping.catch_up, shipping.start),
    Row("quiesce", drafts.quiesce.draft, acts.quiesce.act, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.quarantine.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, acts.fence.undo),
    Row("quarantine", drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", drafts.proving.settle, acts.proving.settle),
    Row("drain", shipping.draft_drain, shipping.drain, shipping.start),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", drafts.activate.draft, acts.activate.act, acts.activate.undo),
    Row("probe", drafts.proving.probe, acts.proving.probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", drafts.unfence.draft, acts.unfence.act, acts.put_back),
    Row("restart-link", shipping.draft_restart, shipping.restart, shipping.start),
    # How a lost site is taken in again.
    Row("residue", drafts.fence.of_returned, reinstate.count_residue),
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
    Observer,
    MirrorTools,
    "start its client acceptors",
    cannot_tell=(BY_COUNT,),
)
