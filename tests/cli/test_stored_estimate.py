"""The stored estimate where it is needed at once: in `status`, beside a plan, as the estimate of a failover."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dr_ctl.application import at_stake
from dr_ctl.application.estimates import StoredEstimate
from dr_ctl.core.system import system
from dr_ctl.engine.outcome import Done, NotNeeded
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.estimate.stored import place, store
from dr_ctl.settings.loader import load
from dr_ctl.settings.model import Place
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.rpo.test_stored import answer


def keep(dr_ctl: Shell, *, minutes_ago: float = 3, lost: int = 7) -> None:
    (dr_ctl.folder / "history").mkdir(exist_ok=True)
    store(Place.at(dr_ctl.folder / "history"), answer(lost=lost), system().now() - timedelta(minutes=minutes_ago))


def test_status_shows_it_with_its_age(dr_ctl: Shell, installation: Installation) -> None:
    without = dr_ctl("status", "--json")
    keep(dr_ctl)

    told, text = dr_ctl("status", "--json"), dr_ctl("status")

    assert without.document["data"]["estimate"] is None
    estimate = told.document["data"]["estimate"]
    assert estimate["total"]["loss"]["now"] == 7
    assert 180 <= estimate["age_s"] < 240
    assert "estimate of london, 3 min" in text.out
    assert " old: p99 of all readings: messages lost 9, age of the oldest 1.50 s" in text.out
    assert "drain not known; objectives met" in text.out
    assert "messages lost 7" not in text.out, "what a failover would cost now is its own figure"
    assert "DR-RPO-018" not in told.ids


def test_one_that_was_made_in_an_outage_says_as_of_when(dr_ctl: Shell, installation: Installation) -> None:
    keep(dr_ctl)
    file = place(dr_ctl.folder / "history", "london")
    told = json.loads(file.read_text())
    outage = {"last_served": "2026-03-01T18:55:53.000Z", "role": "down", "seen_at": "2026-03-01T18:56:00.000Z"}
    told["data"]["outage"] = outage
    file.write_text(json.dumps(told))

    shown = dr_ctl("status", "--json"), dr_ctl("status")

    assert shown[0].document["data"]["estimate"]["outage"] == outage
    as_of = "as of 2026-03-01T18:55:53.000Z, before the outage of london; not the price of a failover now"
    assert as_of in " ".join(shown[1].out.split())


def test_an_old_one_and_a_torn_one_are_findings(dr_ctl: Shell, installation: Installation) -> None:
    keep(dr_ctl, minutes_ago=120)
    old = dr_ctl("status", "--json")
    place(dr_ctl.folder / "history", "london").write_text("{")
    torn = dr_ctl("status", "--json")

    assert "DR-RPO-018" in old.ids
    assert "DR-RPO-017" in torn.ids
    assert torn.document["data"]["estimate"] is None


@pytest.mark.parametrize("operation", ["swapover", "failover"])
def test_a_plan_shows_it(dr_ctl: Shell, installation: Installation, operation: str) -> None:
    keep(dr_ctl)
    words = (
        ("--accept-loss", "unknown", "--accept-duplicates", "unknown", "--presume-down", "london", "--reason", "test")
        if operation == "failover"
        else ()
    )

    told = dr_ctl("plan", operation, "--to", "paris", *words, "--json")

    if "plan" in told.document["data"]:
        assert told.document["data"]["estimate"]["site"] == "london"
    else:  # a failover is refused while the site serves, and says nothing of an estimate
        assert operation == "failover"
        assert "estimate" not in told.document["data"]


def test_a_failovers_estimate_is_the_stored_one_and_asks_nobody(dr_ctl: Shell, installation: Installation) -> None:
    def never(seconds: float) -> None:
        raise AssertionError

    estimator = StoredEstimate(load(dr_ctl.folder / "dr-ctl.yaml"), "london")
    without = estimator.end(within_s=0, wait=never)
    keep(dr_ctl)
    estimator.begin()

    outcome = estimator.end(within_s=0, wait=never)

    assert isinstance(without, NotNeeded)
    assert "no estimate of london is stored" in without.text
    assert isinstance(outcome, Done)
    estimate = outcome.evidence["estimate"]
    assert isinstance(estimate, dict)
    assert estimate["made_at"] < system().now().isoformat()
    assert outcome.text.endswith("the bounds hold now")
    assert "messages lost" not in outcome.text


def test_a_missed_objective_is_named_with_its_class_and_its_limit() -> None:
    seen: dict[str, Any] = {"loss": {"p99": 9}, "age_s": {"p99": 1.5}}
    told = {"verdict": "missed", "total": seen, "classes": [{"queues": ["audit.#"], **seen}]}
    objectives = Objectives(LossLimit(9, 1.0), (LossClass(("audit.#",), LossLimit(8, 2.0)),))

    assert at_stake.verdict(told, objectives) == (
        "objectives missed: the oldest 1.50 s old where 1.00 s are allowed; "
        "9 message(s) of audit.# lost where 8 are allowed"
    )
    assert at_stake.verdict({**told, "verdict": None}, None) == "no objectives set"


def test_what_the_bound_does_not_keep_and_what_is_likely_keeps_cannot_be_told() -> None:
    total = {"loss": {"p99": 214, "likely": {"p99": 15}}, "age_s": {"p99": 0.5, "likely": {"p99": 0.1}}}
    told = {"verdict": "unknown", "total": total}

    text = at_stake.verdict(told, Objectives(LossLimit(200, 1.0), ()))
    missed = at_stake.verdict({**told, "verdict": "missed"}, Objectives(LossLimit(14, 1.0), ()))

    assert text == "objectives: cannot tell: messages lost likely 15, at most 214, where 200 are allowed"
    assert missed == "objectives missed: likely 15 message(s) lost where 14 are allowed"


@pytest.mark.parametrize(("p99", "more"), [(0, " (too few readings, or too late); no violation seen"), (None, "")])
def test_an_objective_that_is_not_known_to_be_met_says_whether_figures_lack(p99: int | None, more: str) -> None:
    told = {"verdict": "unknown", "total": {"loss": {"p99": p99}, "age_s": {"p99": 0}}}

    text = at_stake.verdict(told, Objectives(LossLimit(0, 1.0), ()))

    assert text.startswith(f"objectives: not known{more}")
    assert ("no violation seen" in text) is bool(more)
