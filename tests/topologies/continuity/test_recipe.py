"""What a plan has where something is otherwise than usual; the usual ones stand in tests/record."""

from __future__ import annotations

import pytest

from dr_ctl.core.model import Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.continuity import procedure
from dr_ctl.topologies.continuity.fence import ACTIVATE_SITE, DEACTIVATE_SITE
from tests.topologies.continuity.views import broker, door, flow, seen, service

RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
BOTH = seen(broker("london"), broker("paris"))


def move(operation: str = "swapover", target: str = "paris") -> Move:
    source = "london" if target == "paris" else "paris"
    return Move(Ask(operation, target), source, RECIPE.baseline(BOTH))


def calls(verb: str, asked: Move, site: str = "both") -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    draft = RECIPE.draft(RunbookStep(verb, site, 1), BOTH, asked)
    return draft.calls, draft.inverse


def test_a_site_that_is_activated_and_does_not_deliver_is_activated_again() -> None:
    paris = broker("paris", active=True, service=service("paris", active=True, delivering=False))

    [call] = paris.fence.opening([each for each in paris.doors if not each.started], Peer.DRAINED)

    assert change(call).operation == ACTIVATE_SITE
    assert broker("paris").fence.opening([], Peer.DRAINED) == ()


def test_one_that_is_activated_by_its_flag_only_is_deactivated_too() -> None:
    paris = broker("paris", acceptors=(door("clients", started=False),), service=service("paris", active=True))

    assert [change(call).operation for call in paris.fence.closing([])] == [DEACTIVATE_SITE]


def test_an_undone_return_shuts_the_way_before_anything_is_delivered() -> None:
    shut = broker("paris", active=True, acceptors=(door("clients", started=True), door("mirror", started=False)))
    both = seen(broker("london", active=False), shut)
    asked = Move(Ask("reinstate", "london"), "paris", RECIPE.baseline(both))

    draft = RECIPE.draft(RunbookStep("reinstate", "lost", 1), both, asked)

    undone = [
        (call.site, change(call).operation)
        for call in draft.inverse
        if "deliver" in call.about or "acceptor" in call.about
    ]
    assert undone == [("paris", "stop()"), ("paris", "start()")]


@pytest.mark.parametrize(
    ("to_ship", "lies_there", "duplicates", "severity"),
    [(279, 4, 4, Severity.WARNING), (40, 867, 40, Severity.WARNING), (30, 0, 0, Severity.INFO)],
)
def test_what_comes_twice_at_most_is_said_before_a_return(
    to_ship: int, lies_there: int, duplicates: int, severity: Severity
) -> None:
    """What was done and has its acknowledgement is recognised: only what still lies in its queue can come twice."""
    london = broker("london", flow("orders", to_ship=to_ship, acks=9), depths={"orders": lies_there}, active=False)
    both = seen(london, broker("paris", active=True))

    [told] = [each for each in RECIPE.why_not(both, move("reinstate", "london")) if each.id == "DR-RETURN-005"]

    assert london.link.residue == Residue(to_ship, 9, duplicates)
    assert f"at most {duplicates} of the messages" in told.text
    assert told.severity is severity


def test_sites_with_other_flows_are_not_joined_again() -> None:
    """Nothing of a queue that only one of them has could be compared."""
    both = seen(broker("london", active=False), broker("paris", flow("orders"), flow("new"), active=True))

    assert "DR-CONT-005" in {each.id for each in RECIPE.why_not(both, move("reinstate", "london"))}


def test_what_the_plugin_cannot_do_stands_in_the_plan() -> None:
    told = " ".join(RECIPE.not_replicated(BOTH, move()))

    for words in ("rolled back", "multicast", "scheduled"):
        assert words in told
