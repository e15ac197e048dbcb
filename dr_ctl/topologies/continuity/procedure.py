"""Everything that an installation that the continuity plugin joins does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.topologies.common.recipe import Checks, Procedure, Row
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.common.verbs import activate, canary, fence, plain, proving, quarantine, quiesce
from dr_ctl.topologies.continuity import activate as own_activate
from dr_ctl.topologies.continuity import checks, reconcile, reinstate, shipping
from dr_ctl.topologies.continuity.checks import BY_BROKER, BY_PAIR
from dr_ctl.topologies.continuity.reading import READS
from dr_ctl.topologies.continuity.tools import ContinuityTools
from dr_ctl.topologies.continuity.view import ContinuitySnapshot

# Losses of the plugin's way between the sites.
LOST_ON_THE_WAY: Final = (
    "what was rolled back, or held by a session that closed: the plugin deletes its copies (the drain names them)",
    "the time of delivery of scheduled messages: the plugin replaces it by its staging delay",
    "counts of queues that share an address, multicast ones above all: the plugin ships a message once for each",
    "messages that were put into a queue through management: they pass the plugin by",
)
BY_CONSOLE: Final = "activateSite of the continuity plugin, which starts its client acceptors"

PROCEDURE: Final[Procedure[ContinuitySnapshot, ContinuityTools]] = Procedure(
    Row("observe", proving.draft_observe, proving.observe),
    Row("check", proving.draft_check, proving.check),
    Row("catch-up", shipping.draft_catch_up, shipping.catch_up),
    Row("quiesce", quiesce.draft, quiesce.act, quiesce.undo),
    Row("fence", fence.draft_of_lost, fence.owe, quarantine.undo, of=(FAILOVER,)),
    Row("fence", fence.draft_by_itself, fence.by_itself, fence.undo_by_itself, of=(FENCE,)),
    Row("fence", fence.draft, fence.act, fence.undo),
    Row("quarantine", reinstate.draft_quarantine, quarantine.act, quarantine.undo),
    Row("settle", proving.draft_settle, proving.settle),
    Row("drain", shipping.draft_drain, shipping.drain),
    Row("verify", proving.draft_verify, proving.verify),
    Row("activate", activate.draft, own_activate.act, activate.undo),
    Row("probe", own_activate.draft_probe, own_activate.probe),
    Row("canary", canary.draft, canary.act, canary.undo),
    Row("clean-canary", canary.draft_clean, canary.clean),
    Row("unfence", fence.draft_unfence, fence.unfence, plain.put_back),
    # How a lost site is taken in again.
    Row("residue", fence.draft_of_returned, reinstate.count_residue),
    Row("reinstate", reinstate.draft, reinstate.act, reinstate.undo),
    Row("reconcile", reinstate.draft_reconcile, reconcile.act),
)
CHECKS: Final = Checks(
    checks.of_move,
    checks.of_broker,
    checks.of_moved,
    reinstate.of_return,
    reinstate.nothing_owed,
    BY_BROKER,
    BY_PAIR,
    checks.of_opening,
)
open_: Final = Kind(PROCEDURE, CHECKS, READS, ContinuityTools, BY_CONSOLE, LOST_ON_THE_WAY)
