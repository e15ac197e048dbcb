"""Everything that speaks against a move where the plugin joins the sites, and what a plan has beside the usual."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.model import Role, Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Config, Peer
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.continuity import procedure
from dr_ctl.topologies.continuity.checks import of_move
from dr_ctl.topologies.continuity.fence import ACTIVATE_SITE, DEACTIVATE_SITE
from dr_ctl.topologies.continuity.view import SiteView
from tests.topologies.continuity.views import bridge, broker, door, flow, queue, seen, service

LONDON, PARIS = broker("london"), broker("paris")


def findings(london: SiteView = LONDON, paris: SiteView = PARIS) -> dict[str, Severity]:
    found = of_move(
        Rules(Queues(), Drain(), Patience()), seen(london, paris), Move(Ask("swapover", "paris"), "london", {})
    )
    assert all(each.remedy for each in found if each.severity is not Severity.INFO)
    return {each.id: each.severity for each in found}


def test_nothing_speaks_against_a_pair_that_is_well() -> None:
    assert findings() == {}


def commands(view: SiteView, depth: int) -> SiteView:
    assert view.commands is not None
    return replace(view, commands=replace(view.commands, out=queue("continuity.cmd.out", depth, consumers=1)))


def serviced(site: str, **more: Any) -> SiteView:
    return replace(LONDON if site == "london" else PARIS, service=service(site, active=site == "london", **more))


SHORT = Config(("clients",), ("mirror",), None, id_cache=100)
STOPPED, PAUSED = bridge("orders.out.mirror.bridge", started=False), queue("orders.in.mirror", 4, paused=True)


@pytest.mark.parametrize(
    ("london", "paris", "finding"),
    [
        (replace(LONDON, service=None), PARIS, "DR-CONT-001 error"),
        (serviced("london", started=False), PARIS, "DR-CONT-001 error"),
        (broker("london", flow("a", address="x"), flow("b", address="x")), PARIS, "DR-CONT-002 error"),
        (broker("london", depths={"orders": 20_001}), PARIS, "DR-CONT-003 warning"),
        (broker("london", depths={"orders": 101}, config=SHORT), PARIS, "DR-CONT-003 warning"),
        (LONDON, replace(PARIS, service=service("london", active=False)), "DR-CONT-004 error"),
        (LONDON, broker("paris", flow("others")), "DR-CONT-005 error"),
        (LONDON, serviced("paris", suffixes=(".o", ".a", ".i", ".c")), "DR-CONT-005 error"),
        (LONDON, replace(PARIS, acceptors=(door("clients", started=True),)), "DR-CONT-006 error"),
        (serviced("london", delivering=False), PARIS, "DR-CONT-007 warning"),
        (broker("london", flow("orders", mirror_bridge=STOPPED)), PARIS, "DR-CONT-008 error"),
        (broker("london", flow("orders", out_acks=queue("orders.out.acks"))), PARIS, "DR-CONT-009 warning"),
        (commands(LONDON, 2), PARIS, "DR-CONT-010 warning"),
        (LONDON, broker("paris", flow("orders", in_acks=queue("orders.in.acks"))), "DR-CONT-011 error"),
        (replace(LONDON, now_ms=LONDON.now_ms + 2001), PARIS, "DR-CONT-012 warning"),
        (broker("london", flow("orders", in_mirror=PAUSED)), PARIS, "DR-CONT-015 error"),
        (replace(LONDON, version="2.19.0"), PARIS, "DR-PAIR-002 warning"),
        (LONDON, replace(PARIS, queues=(queue("orders", paused=True),)), "DR-QUEUE-002 warning"),
    ],
)
def test_each_has_its_finding(london: SiteView, paris: SiteView, finding: str) -> None:
    id_, severity = finding.split()
    assert findings(london, paris)[id_] is Severity(severity)


@pytest.mark.parametrize(
    ("view", "role", "open_"),
    [
        (LONDON, Role.SERVING, True),
        (PARIS, Role.STANDBY, False),
        # Clients can connect as soon as it is activated, whatever it delivers.
        (replace(PARIS, service=service("paris", active=True, delivering=False)), Role.SERVING, True),
        (replace(LONDON, service=None), Role.UNKNOWN, True),
        (replace(PARIS, service=None), Role.UNKNOWN, False),
        (replace(PARIS, acceptors=()), Role.UNKNOWN, False),
    ],
)
def test_the_role_follows_from_the_plugin_and_its_doors(view: SiteView, role: Role, *, open_: bool) -> None:
    assert (view.role, view.open) == (role, open_)


def paris(**more: Any) -> SiteView:
    return broker("paris", flow("orders", **more))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (paris(to_ship=3), "3 to ship in orders.out.mirror"),
        (paris(acks=2), "2 to ship in orders.out.acks"),
        (paris(unapplied=1), "1 not applied yet in orders.in.acks"),
        (paris(in_mirror=queue("orders.in.mirror", 4, scheduled=4)), "4 in orders.in.mirror for the staging delay"),
        (paris(out_mirror=queue("orders.out.mirror")), "a bridge is not connected"),
        (paris(acks_bridge=bridge("orders.out.acks.bridge", started=False)), "orders.out.acks.bridge is stopped"),
        (commands(PARIS, 1), "1 command(s) in continuity.cmd.out"),
    ],
)
def test_what_is_under_way_keeps_the_gate_shut_and_what_is_staged_and_ready_does_not(
    view: SiteView, words: str
) -> None:
    assert words in " ".join(view.link.unsettled())
    assert len(list(view.link.unsettled())) == 1
    assert list(paris(staged=5).link.unsettled()) == []


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
