"""Everything that an installation with a shared store does for the verbs of its runbooks, row by row."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import Finding
from dr_ctl.engine.operations import ACTIVATE, FAILOVER, FENCE
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.classic import drafts as classic
from dr_ctl.topologies.classic.acts import quiesce
from dr_ctl.topologies.common import acts, drafts
from dr_ctl.topologies.common import recipe as common
from dr_ctl.topologies.common.recipe import Checks
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.topology import Kind
from dr_ctl.topologies.procedure import Procedure, Row
from dr_ctl.topologies.sharedstore import acts as own_acts
from dr_ctl.topologies.sharedstore import checks
from dr_ctl.topologies.sharedstore import drafts as own_drafts
from dr_ctl.topologies.sharedstore.access import Observer
from dr_ctl.topologies.sharedstore.findings import HOLDS_AND_SERVES_NOBODY
from dr_ctl.topologies.sharedstore.named import BY_BROKER
from dr_ctl.topologies.sharedstore.tools import StoreTools
from dr_ctl.topologies.sharedstore.view import BrokerView

IN_THE_STORE: Final = "{site} holds nothing of its own: what it had lies in the store"
ONE_STORE: Final = "both sites use one store: there is nothing to compare"

PROCEDURE: Final[Procedure[Rules, Seen[BrokerView], StoreTools]] = Procedure(
    Row("observe", drafts.proving.observe, acts.proving.observe),
    Row("check", drafts.proving.check, acts.proving.check),
    Row("catch-up", own_drafts.shipping.catch_up, own_acts.shipping.catch_up),
    Row("quiesce", classic.quiesce, quiesce, acts.quiesce.undo),
    Row("fence", drafts.fence.of_lost, acts.fence.owe, acts.fence.undo, of=(FAILOVER,)),
    Row("fence", drafts.fence.by_itself, acts.fence.by_itself, acts.fence.undo_by_itself, of=(FENCE,)),
    Row("fence", drafts.fence.draft, acts.fence.act, acts.fence.undo),
    Row("quarantine", drafts.nothing(IN_THE_STORE, at_source=True), acts.nothing),
    Row("settle", drafts.proving.settle, acts.proving.settle),
    Row("drain", own_drafts.shipping.drain, own_acts.shipping.drain),
    Row("verify", drafts.proving.verify, acts.proving.verify),
    Row("activate", own_drafts.activate.draft, own_acts.activate.act),
    Row("probe", classic.probe, acts.proving.probe),
    Row("canary", drafts.canary.draft, acts.canary.act, acts.canary.undo),
    Row("clean-canary", drafts.canary.clean, acts.canary.clean),
    Row("unfence", drafts.unfence.draft, acts.unfence.act, acts.put_back),
    # How a lost site is taken in again.
    Row("residue", drafts.nothing("it holds nothing of its own"), acts.nothing),
    Row("reinstate", own_drafts.reinstate.draft, own_acts.reinstate.act, acts.put_back),
    Row("reconcile", drafts.nothing(ONE_STORE), acts.nothing),
)
NOT_IN_THE_STORE: Final = (
    "messages that were sent as non-persistent: they lie in their broker's memory and end with it",
)


class StoreRecipe(common.Recipe[BrokerView]):
    """The half that decides."""

    def why_not(self, seen: Seen[BrokerView], move: Move) -> Sequence[Finding]:
        found = super().why_not(seen, move)
        if move.ask.operation == ACTIVATE and _holds_closed(seen, move.target) and not move.sent:
            text = f"{move.target} holds the store already, and is closed: there is nothing to take"
            return [HOLDS_AND_SERVES_NOBODY(text, f"`dr-ctl unfence {move.target}` lets clients in there."), *found]
        if move.ask.operation != FAILOVER or not _holds_closed(seen, move.source):
            return found
        text = f"{move.source} answers, is closed and holds the store: {move.target} cannot take it"
        remedy = f"`dr-ctl drain --to {move.target}`, then `dr-ctl activate {move.target}`, makes it give that up."
        return [HOLDS_AND_SERVES_NOBODY(text, remedy), *found]


def _holds_closed(seen: Seen[BrokerView], site: str) -> bool:
    views = seen.views(site)
    return any(view.has_the_store for view in views) and not any(view.open for view in views)


CHECKS: Final = Checks(
    checks.of_move, checks.of_broker, checks.of_both, checks.of_return, checks.nothing_owed, BY_BROKER, ()
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    Observer,
    StoreTools,
    "start its clients' connectors, or its broker",
    NOT_IN_THE_STORE,
    decides=StoreRecipe,
)
