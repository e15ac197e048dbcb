"""Everything that a mirrored installation does for the verbs of its runbooks, row by row."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.patience import Patience
from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common.driver import Driver
from dr_ctl.topologies.common.recipe import Checks, Recipe
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.mirror import acts as own_acts
from dr_ctl.topologies.mirror import checks, taken_in
from dr_ctl.topologies.mirror import drafts as own_drafts
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen
from dr_ctl.topologies.procedure import Procedure, Row

PROCEDURE: Final[Procedure[Rules, MirrorSeen, MirrorTools]] = Procedure(
    Row("observe", drafts.check.observe, acts.check.observe),
    Row("check", drafts.check.check, acts.check.check),
    Row("catch-up", own_drafts.catch_up.draft, own_acts.catch_up.act, own_acts.catch_up.undo),
    Row("quiesce", drafts.quiesce.draft, acts.quiesce.act, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.quarantine.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, acts.fence.undo),
    Row("quarantine", drafts.quarantine.draft, acts.quarantine.act, acts.quarantine.undo),
    Row("settle", drafts.settle.draft, acts.settle.act),
    Row("drain", own_drafts.drain.draft, own_acts.drain.act, own_acts.drain.undo),
    Row("verify", drafts.verify.draft, acts.verify.act),
    Row("activate", drafts.activate.draft, acts.activate.act, acts.activate.undo),
    Row("probe", drafts.probe.draft, acts.probe.act),
    Row("release", drafts.release.draft, acts.release.act, acts.release.undo),
    # How a lost site is taken in again.
    Row("residue", own_drafts.residue.draft, own_acts.residue.act),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, own_acts.reinstate.undo),
    Row("reconcile", own_drafts.reconcile.draft, own_acts.reconcile.act),
)


def recipe(queues: Queues, drain: Drain, patience: Patience) -> Recipe[BrokerView]:
    """The half that decides."""
    told = Checks(checks.of_move, checks.of_broker, taken_in.findings, taken_in.nothing_owed)
    return Recipe(Rules(queues, drain, patience), PROCEDURE, told)


def driver(observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> Driver[BrokerView]:
    """The half that acts; one serves one command."""
    return Driver(PROCEDURE, MirrorTools(observer, recipe, sender), "start its client acceptors")
