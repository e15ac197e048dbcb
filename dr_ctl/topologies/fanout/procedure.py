"""Everything that a fan-out installation does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.classic import drafts as classic
from dr_ctl.topologies.classic.acts import probe, quiesce
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.recipe import Checks
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.fanout import acts as own_acts
from dr_ctl.topologies.fanout import checks
from dr_ctl.topologies.fanout import drafts as own_drafts
from dr_ctl.topologies.fanout.named import BY_BROKER, BY_PAIR
from dr_ctl.topologies.fanout.observer import Observer
from dr_ctl.topologies.fanout.tools import FanoutTools
from dr_ctl.topologies.fanout.view import BrokerView
from dr_ctl.topologies.procedure import Procedure, Row

PROCEDURE: Final[Procedure[Rules, Seen[BrokerView], FanoutTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", own_drafts.levelling.catch_up, own_acts.levelling.catch_up),
    Row("quiesce", classic.quiesce, quiesce, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.fence.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, acts.fence.undo),
    Row("quarantine", drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", own_drafts.levelling.settle, own_acts.levelling.settle),
    Row("drain", own_drafts.levelling.drain, own_acts.levelling.drain),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", drafts.activate.draft, acts.activate.act, acts.activate.undo),
    Row("probe", classic.probe, probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", drafts.unfence.draft, acts.unfence.act, acts.put_back),
    Row("trim", own_drafts.levelling.trim, own_acts.levelling.trim, own_acts.levelling.undo_trim),
    # How a lost site is taken in again.
    Row("residue", drafts.fence.of_returned, own_acts.reinstate.residue),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, acts.put_back),
    Row("reconcile", own_drafts.reinstate.reconcile, own_acts.reinstate.reconcile),
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
open_: Final = Kind(PROCEDURE, CHECKS, Observer, FanoutTools, "start its clients' connectors", NOT_WRITTEN_TWICE)
