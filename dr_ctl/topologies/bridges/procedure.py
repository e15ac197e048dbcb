"""Everything that an installation of diverts and bridges does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.bridges import acts as own_acts
from dr_ctl.topologies.bridges import checks
from dr_ctl.topologies.bridges import drafts as own_drafts
from dr_ctl.topologies.bridges.access import Observer
from dr_ctl.topologies.bridges.named import BY_BROKER, BY_PAIR
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.failover import nothing_owed
from dr_ctl.topologies.common.recipe import Checks
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.procedure import Procedure, Row

PROCEDURE: Final[Procedure[Rules, Seen[BrokerView], BridgesTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", own_drafts.shipping.catch_up, own_acts.shipping.catch_up, own_acts.shipping.start),
    Row("quiesce", drafts.quiesce.draft, acts.quiesce.act, acts.quiesce.undo),
    Row("fence", own_drafts.fence.of_lost, own_acts.fence.owe, own_acts.fence.undo, of=(FAILOVER,)),
    Row("fence", own_drafts.fence.by_itself, own_acts.fence.by_itself, own_acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", own_drafts.fence.draft, own_acts.fence.act, own_acts.fence.undo),
    Row("quarantine", drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", drafts.proving.settle, acts.proving.settle),
    Row("drain", own_drafts.shipping.drain, own_acts.shipping.drain, own_acts.shipping.start),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", own_drafts.activate.draft, own_acts.activate.act, own_acts.activate.undo),
    Row("probe", drafts.proving.probe, acts.proving.probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", own_drafts.unfence.draft, own_acts.unfence.act, acts.put_back),
    Row("restart-link", own_drafts.shipping.restart, own_acts.shipping.restart, own_acts.shipping.start),
    Row("trim", own_drafts.trim.draft, own_acts.trim.act),
    # How a lost site is taken in again.
    Row("residue", own_drafts.fence.of_returned, own_acts.fence.residue),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, own_acts.reinstate.undo),
    Row("reconcile", own_drafts.reinstate.reconcile, own_acts.reinstate.reconcile),
)
CHECKS: Final = Checks(
    checks.of_move, checks.of_broker, checks.of_both, checks.of_return, nothing_owed, BY_BROKER, BY_PAIR
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    Observer,
    BridgesTools,
    "give the clients' roles their rights at each queue's address back",
    moves_parts=True,
)
