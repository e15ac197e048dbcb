"""What a plan has where something is otherwise than usual; the usual ones stand in tests/record."""

from __future__ import annotations

import pytest

from dr_ctl.core.model import Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.continuity import procedure
from dr_ctl.topologies.continuity.fence import ACTIVATE_SITE, DEACTIVATE_SITE
from tests.topologies.continuity.views import broker, door, flow, seen, service

RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
RETURN = Move(Ask("reinstate", "london"), "paris", {})


def test_a_flag_alone_is_no_site_that_delivers_and_none_that_is_closed() -> None:
    paris = broker("paris", active=True, service=service("paris", active=True, delivering=False))
    by_flag = broker("paris", acceptors=(door("clients", started=False),), service=service("paris", active=True))
    [again] = paris.fence.opening([each for each in paris.doors if not each.started], Peer.DRAINED)
    assert [change(call).operation for call in (again, *by_flag.fence.closing([]))] == [ACTIVATE_SITE, DEACTIVATE_SITE]
    assert broker("paris").fence.opening([], Peer.DRAINED) == ()


@pytest.mark.parametrize(
    ("to_ship", "lies_there", "duplicates", "severity"),
    [(279, 4, 4, Severity.WARNING), (40, 867, 40, Severity.WARNING), (30, 0, 0, Severity.INFO)],
)
def test_what_comes_twice_at_most_is_said_before_a_return(
    to_ship: int, lies_there: int, duplicates: int, severity: Severity
) -> None:
    """What was done and has its acknowledgement is recognised: only what still lies in its queue can come twice."""
    london = broker("london", flow("orders", to_ship=to_ship, acks=9), depths={"orders": lies_there}, active=False)
    both = seen(london, broker("paris", flow("orders"), flow("new"), active=True))

    found = {each.id: each for each in RECIPE.why_not(both, RETURN)}

    assert london.link.residue == Residue(to_ship, 9, duplicates)
    assert f"at most {duplicates} of the messages" in found["DR-RETURN-005"].text
    assert found["DR-RETURN-005"].severity is severity
    assert "DR-CONT-005" in found, "nothing of a queue that only one of them has could be compared"
