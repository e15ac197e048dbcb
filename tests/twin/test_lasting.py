"""A fence that outlasts a restart: the clients' role is kept out, and let in wherever the site serves again."""

from typing import Any

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.host import APP
from tests.conftest import Command
from tests.twin.matrix import ACCEPTED, at_calls, done, edited, kept, serving

TO_LONDON = ("swapover", "--to", "london", "--yes")


def works(twin: PlayedTwin, site: str) -> bool:
    return twin.host(site).broker.security.may(APP, "send", "orders.in")


@pytest.fixture
def moved(twin: PlayedTwin, dr_ctl: Command) -> None:
    """London's roles are kept out from then on."""
    done(dr_ctl("swapover", "--to", "paris", "--yes"))


@pytest.mark.usefixtures("moved")
def test_a_role_that_stays_out_stops_a_move_and_not_a_failover(twin: PlayedTwin, dr_ctl: Command) -> None:
    stuck = Fault(FaultKind.IDLE, When(operation="removeSecuritySettings"), times=None)
    twin.host("london").faults.add(stuck)
    back = dr_ctl(*TO_LONDON)
    assert (back.code, serving(twin)) == (20, ("paris",)), back.document

    twin.kill("paris")
    ended = dr_ctl("failover", "--to", "london", "--yes", *ACCEPTED)

    assert (ended.code, works(twin, "london")) == (21, False), ended.document
    assert "let role apps in to #" in ended.document["summary"]


@pytest.mark.usefixtures("moved")
def test_a_site_that_is_opened_while_the_roles_of_the_other_are_let_in_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate's look at the other site served until then, and the one before the doors open is a new one."""
    opened = list[str]()
    at_calls(monkeypatch, Goal.ADMIT, lambda: twin.open_clients("paris"))
    at_calls(monkeypatch, Goal.OPEN, lambda: opened.append("tried"), first=True)

    ended = dr_ctl(*TO_LONDON)

    assert (ended.code, serving(twin), opened) == (20, ("paris",), []), ended.document
    assert "paris is open: a second site is never opened" in ended.document["summary"]


@pytest.mark.usefixtures("moved")
def test_rights_that_somebody_gives_once_the_gate_holds_are_not_taken_away(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights are not among what the gate reads: they are looked at before a call changes any."""
    verify = Verifier.verify

    def given_since(*words: Any) -> Outcome:
        outcome = verify(*words)
        twin.host("london").broker.security.add("#", *["amq,apps"] * 10)
        return outcome

    monkeypatch.setattr(Verifier, "verify", given_since)

    done(dr_ctl(*TO_LONDON))

    assert works(twin, "london")
    assert {match: {*roles} for match, roles in kept(twin, "london").items()} == {"#": {"amq", "apps"}}


def test_what_management_gave_is_given_back_where_the_file_gives_clients_nothing(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    with edited(twin) as told, twin.still():
        for site, part in told["sites"].items():
            part["brokers"][0]["lasting_fence"] = {"roles": ["apps"], "matches": ["orders.#"]}
            security = twin.host(site).broker.security
            security._file = {"#": {role: may for role, may in security._file["#"].items() if role != "apps"}}
            security.add("orders.#", "amq,apps", "amq,apps", *["amq"] * 10)
            security.reload()
    given = kept(twin, "paris")
    done(dr_ctl("fence", "paris", "--yes"))

    for to in ("paris", "london"):
        done(dr_ctl("swapover", "--to", to, "--yes"))

        assert kept(twin, to) == given
        assert [works(twin, site) for site in ("london", "paris")] == [to == "london", to == "paris"]
