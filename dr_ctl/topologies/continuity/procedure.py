"""Everything that an installation that the continuity plugin joins does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.recipe import Checks
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.continuity import acts as own_acts
from dr_ctl.topologies.continuity import checks, taken_in
from dr_ctl.topologies.continuity import drafts as own_drafts
from dr_ctl.topologies.continuity.access import Observer
from dr_ctl.topologies.continuity.named import BY_BROKER, BY_PAIR
from dr_ctl.topologies.continuity.tools import ContinuityTools
from dr_ctl.topologies.continuity.view import ContinuitySeen
from dr_ctl.topologies.procedure import Procedure, Row

# Losses of the plugin's way between the sites.
LOST_ON_THE_WAY: Final = (
    "what was rolled back, or held by a session that closed: the plugin deletes its copies (the drain names them)",
    "the time of delivery of scheduled messages: the plugin replaces it by its staging delay",
    "counts of queues that share an address, multicast ones above all: the plugin ships a message once for each",
    "messages that were put into a queue through management: they pass the plugin by",
)
BY_CONSOLE: Final = "activateSite of the continuity plugin, which starts its client acceptors"

PROCEDURE: Final[Procedure[Rules, ContinuitySeen, ContinuityTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", own_drafts.shipping.catch_up, own_acts.catch_up.act),
    Row("quiesce", drafts.quiesce.draft, acts.quiesce.act, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.quarantine.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, acts.fence.undo),
    Row("quarantine", own_drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", drafts.proving.settle, acts.proving.settle),
    Row("drain", own_drafts.shipping.drain, own_acts.drain.act),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", drafts.activate.draft, own_acts.activate.act, acts.activate.undo),
    Row("probe", own_drafts.probe.draft, own_acts.activate.probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", drafts.unfence.draft, acts.unfence.act, acts.put_back),
    # How a lost site is taken in again.
    Row("residue", drafts.fence.of_returned, own_acts.residue.act),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, own_acts.reinstate.undo),
    Row("reconcile", own_drafts.reinstate.reconcile, own_acts.reconcile.act),
)
CHECKS: Final = Checks(
    checks.of_move,
    checks.of_broker,
    checks.of_moved,
    taken_in.findings,
    taken_in.nothing_owed,
    BY_BROKER,
    BY_PAIR,
    checks.of_opening,
)
open_: Final = Kind(PROCEDURE, CHECKS, Observer, ContinuityTools, BY_CONSOLE, LOST_ON_THE_WAY)
