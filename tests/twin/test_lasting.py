"""A fence that outlasts a restart: the clients' role is kept out, and let in wherever the site serves again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.host import APP
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.twin.matrix import done, lose_and_return, serving

KEPT_OUT = {"#": {"amq"}}


def kept(twin: PlayedTwin, site: str) -> dict[str, set[str]]:
    """What management has set at a site, by match: the roles that may do something."""
    return {match: set(grants) for match, grants in twin.host(site).broker.security.kept.items()}


def works(twin: PlayedTwin, site: str) -> bool:
    return twin.host(site).broker.security.may(APP, "send", "orders.in")


def settings(twin: PlayedTwin, **more: Any) -> None:
    """Say something else of every broker in the settings."""
    told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    for site in told["sites"].values():
        for broker in site["brokers"]:
            broker.update(more)
            if broker["lasting_fence"] is None:
                del broker["lasting_fence"]
    twin.settings_path.write_text(json.dumps(told), encoding="utf-8")


def found(ended: Ended) -> dict[str, str]:
    return {each["id"]: each["severity"] for each in ended.document["findings"]}


def test_a_move_keeps_the_role_out_behind_it_and_the_move_back_lets_it_in(twin: PlayedTwin, dr_ctl: Command) -> None:
    there = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert "a restart does not let clients in" in there.err
    assert (kept(twin, "london"), kept(twin, "paris")) == (KEPT_OUT, {})
    twin.kill("london")
    twin.start("london")
    assert not works(twin, "london")

    done(dr_ctl("swapover", "--to", "london", "--yes"))

    assert (kept(twin, "london"), kept(twin, "paris")) == ({}, KEPT_OUT)
    assert works(twin, "london")


def test_a_move_that_fails_gives_the_role_back(twin: PlayedTwin, dr_ctl: Command) -> None:
    late = Fault(FaultKind.LIE, When(changing=False), times=None, attribute="PendingMirrorAcks", value=1)
    twin.host("paris").faults.add(late)
    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--timeout", "1s")

    assert ended.code == 24, ended.document
    assert [each.operation for each in twin.changes() if "ecurity" in each.operation and each.site == "london"]
    assert serving(twin) == ("london",)
    assert kept(twin, "london") == kept(twin, "paris") == {}


def test_a_fence_by_itself_lasts_and_its_unfence_lifts_it(twin: PlayedTwin, dr_ctl: Command) -> None:
    done(dr_ctl("fence", "london", "--yes"))
    assert kept(twin, "london") == KEPT_OUT

    done(dr_ctl("unfence", "london", "--yes"))
    assert serving(twin) == ("london",)
    assert kept(twin, "london") == {}


def test_a_site_that_is_only_closed_is_kept_out_by_one_more_fence(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.close_clients("london")

    assert done(dr_ctl("fence", "london", "--yes")).document["outcome"] == "ok"

    assert kept(twin, "london") == KEPT_OUT
    assert "already" in done(dr_ctl("fence", "london", "--yes")).document["summary"]


def test_a_restart_that_opens_the_doors_is_told_and_mended(twin: PlayedTwin, dr_ctl: Command) -> None:
    done(dr_ctl("fence", "london", "--yes"))
    twin.open_clients("london")  # as an acceptor that opens at boot

    assert found(dr_ctl("validate"))["DR-FENCE-004"] == "error"
    assert found(dr_ctl("swapover", "--to", "paris", "--yes"))["DR-FENCE-004"] == "error"
    done(dr_ctl("unfence", "london", "--yes"))

    assert serving(twin) == ("london",)
    assert "DR-FENCE-004" not in found(dr_ctl("validate"))


def test_a_site_that_was_lost_is_kept_out_when_it_returns_open(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose_and_return(twin, dr_ctl)
    twin.open_clients("london")

    done(dr_ctl("reinstate", "london", "--yes"))
    assert kept(twin, "london") == KEPT_OUT

    done(dr_ctl("failback", "--to", "london", "--yes"))
    assert serving(twin) == ("london",)
    assert (kept(twin, "london"), kept(twin, "paris")) == ({}, KEPT_OUT)


def test_a_role_that_stays_out_stops_a_move_and_not_a_failover(twin: PlayedTwin, dr_ctl: Command) -> None:
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    stuck = Fault(FaultKind.IDLE, When(operation="removeSecuritySettings"), times=None)
    twin.host("london").faults.add(stuck)
    moved = dr_ctl("swapover", "--to", "london", "--yes")
    assert moved.code == 20, moved.document
    assert serving(twin) == ("paris",)

    twin.kill("paris")
    failed_over = dr_ctl(
        "failover", "--to", "london", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
    )

    assert failed_over.code == 21, failed_over.document
    assert "let role apps in to #" in failed_over.document["summary"]
    assert not works(twin, "london")


def once(monkeypatch: pytest.MonkeyPatch, goal: Goal, act: Callable[[], object]) -> list[list[Goal | None]]:
    """Have something happen as soon as calls for that have been answered, once; gives the calls of each request."""
    post, sent = Sender._post, list[list[Goal | None]]()

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        sent.append([call.goal for call in calls])
        if goal in sent[-1] and not any(goal in each for each in sent[:-1]):
            act()
        return outcomes

    monkeypatch.setattr(Sender, "_post", posted)
    return sent


def test_a_site_that_is_opened_while_the_roles_of_the_other_are_let_in_stays_the_only_one(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate's look at the other site served until then, and the one before the doors open is a new one."""
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    sent = once(monkeypatch, Goal.ADMIT, lambda: twin.open_clients("paris"))

    ended = dr_ctl("swapover", "--to", "london", "--yes")

    assert ended.code == 20, ended.document
    assert "paris is open: a second site is never opened" in ended.document["summary"]
    assert serving(twin) == ("paris",)
    assert not any(Goal.OPEN in each for each in sent)


def test_broker_xml_is_read_again_with_the_roles_where_nothing_less_lets_them_in(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    sent = once(monkeypatch, Goal.ADMIT, lambda: None)

    done(dr_ctl("swapover", "--to", "london", "--yes"))

    assert [each for each in sent if Goal.ADMIT in each] == [[Goal.ADMIT, Goal.ADMIT]]
    assert works(twin, "london")


def test_broker_xml_is_not_read_again_where_its_rights_for_all_addresses_let_roles_in(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(twin, lasting_fence={"roles": ["apps"], "matches": ["orders.#"]})
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    assert not works(twin, "london")
    sent = once(monkeypatch, Goal.ADMIT, lambda: None)

    done(dr_ctl("swapover", "--to", "london", "--yes"))

    assert [each for each in sent if Goal.ADMIT in each] == [[Goal.ADMIT]]
    assert works(twin, "london")


def test_rights_that_somebody_gives_once_the_gate_holds_are_not_taken_away(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights are not among what the gate reads: they are looked at before a call changes any."""
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    verify = Verifier.verify

    def given_since(*words: Any) -> Outcome:
        outcome = verify(*words)
        twin.host("london").broker.security.add("#", *["amq,apps"] * 10)
        return outcome

    monkeypatch.setattr(Verifier, "verify", given_since)

    done(dr_ctl("swapover", "--to", "london", "--yes"))

    assert works(twin, "london")
    assert kept(twin, "london") == {"#": {"amq", "apps"}}


@pytest.mark.parametrize(
    ("lasting", "finding", "severity"),
    [
        ({"roles": ["app"]}, "DR-FENCE-004", "error"),  # no such role
        ({"roles": ["amq"]}, "DR-FENCE-006", "error"),  # the link's own
        ({"roles": ["apps"], "matches": ["orders.in"]}, None, ""),
    ],
)
def test_settings_that_keep_nobody_out_or_the_link_too_are_refused(
    twin: PlayedTwin, dr_ctl: Command, lasting: dict[str, Any], finding: str | None, severity: str
) -> None:
    settings(twin, lasting_fence=lasting)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == (10 if finding else 0), ended.document
    assert finding is None or found(ended)[finding] == severity
    assert serving(twin) == (("london",) if finding else ("paris",))


def test_addresses_that_the_matches_leave_out_are_named(twin: PlayedTwin, dr_ctl: Command) -> None:
    settings(twin, lasting_fence={"roles": ["apps"], "matches": ["orders.in"]})

    ended = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    (told,) = [each["text"] for each in ended.document["findings"] if each["id"] == "DR-FENCE-008"]
    assert "orders.out" in told
    assert "orders.in" not in told


def test_without_such_settings_no_role_is_touched(twin: PlayedTwin, dr_ctl: Command) -> None:
    settings(twin, lasting_fence=None)

    done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert kept(twin, "london") == kept(twin, "paris") == {}
    assert not [each for each in twin.changes() if "ecurity" in each.operation]
