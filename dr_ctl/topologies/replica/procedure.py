"""Everything that an installation with the replication plugin does for the verbs of its runbooks, row by row."""

from __future__ import annotations

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.classic import drafts as classic
from dr_ctl.topologies.classic.acts import probe, quiesce
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.recipe import Checks
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.procedure import Procedure, Row
from dr_ctl.topologies.replica import acts as own_acts
from dr_ctl.topologies.replica import checks
from dr_ctl.topologies.replica import drafts as own_drafts
from dr_ctl.topologies.replica.access import Observer
from dr_ctl.topologies.replica.named import BY_BROKER, BY_PAIR
from dr_ctl.topologies.replica.tools import ReplicaTools
from dr_ctl.topologies.replica.view import BrokerView

PROCEDURE: Final[Procedure[Rules, Seen[BrokerView], ReplicaTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", own_drafts.shipping.catch_up, own_acts.shipping.catch_up),
    Row("quiesce", classic.quiesce, quiesce, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.quarantine.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, own_acts.doors.undo_fence_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, own_acts.doors.undo_fence),
    Row("quarantine", drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", drafts.proving.settle, acts.proving.settle),
    Row("drain", own_drafts.shipping.drain, own_acts.shipping.drain),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", own_drafts.activate.draft, own_acts.activate.act, acts.activate.undo),
    Row("probe", classic.probe, probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", drafts.unfence.draft, own_acts.doors.unfence, acts.put_back),
    # How a lost site is taken in again.
    Row("residue", drafts.fence.of_returned, own_acts.reinstate.residue),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, acts.put_back),
    Row("reconcile", own_drafts.reinstate.reconcile, own_acts.reinstate.reconcile),
)
NOT_REPLICATED: Final = (
    "messages that wait in a broker's scheduler for their time, and mirrored queues",
    "the settings of activemq.xml",
)
CHECKS: Final = Checks(
    checks.of_move, checks.of_broker, checks.of_both, checks.of_return, checks.nothing_owed, BY_BROKER, BY_PAIR
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    Observer,
    ReplicaTools,
    "let its replication plugin take over, setReplicationRole(source, true)",
    NOT_REPLICATED,
)
