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
from tests.conftest import Command
from tests.twin.matrix import done, serving


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
