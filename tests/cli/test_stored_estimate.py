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


def test_a_plan_shows_it(dr_ctl: Shell, installation: Installation) -> None:
    keep(dr_ctl)

    assert dr_ctl("plan", "swapover", "--to", "paris", "--json").document["data"]["estimate"]["site"] == "london"


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


CLASSES = (LossClass(("audit.#",), LossLimit(8, 2.0)),)
LIKELY: dict[str, Any] = {
    "loss": {"p99": 214, "likely": {"p99": 15}},
    "age_s": {"p99": 0.5, "likely": {"p99": 0.1}},
}
SEEN: dict[str, Any] = {"loss": {"p99": 9}, "age_s": {"p99": 1.5}}


@pytest.mark.parametrize(
    ("verdict", "total", "limits", "text"),
    [
        (
            "missed",
            SEEN,
            Objectives(LossLimit(9, 1.0), CLASSES),
            (
                "objectives missed: the oldest 1.50 s old where 1.00 s are allowed; "
                "9 message(s) of audit.# lost where 8 are allowed"
            ),
        ),
        (None, SEEN, None, "no objectives set"),
        (
            "unknown",
            LIKELY,
            Objectives(LossLimit(200, 1.0), ()),
            "objectives: cannot tell: messages lost likely 15, at most 214, where 200 are allowed",
        ),
        (
            "missed",
            LIKELY,
            Objectives(LossLimit(14, 1.0), ()),
            "objectives missed: likely 15 message(s) lost where 14 are allowed",
        ),
        (
            "unknown",
            {"loss": {"p99": 0}, "age_s": {"p99": 0}},
            Objectives(LossLimit(0, 1.0), ()),
            "objectives: not known (too few readings, or too late); no violation seen",
        ),
        (
            "unknown",
            {"loss": {"p99": None}, "age_s": {"p99": 0}},
            Objectives(LossLimit(0, 1.0), ()),
            "objectives: not known",
        ),
    ],
)
def test_what_is_said_of_the_objectives(
    verdict: str | None, total: dict[str, Any], limits: Objectives | None, text: str
) -> None:
    told = {"verdict": verdict, "total": total, "classes": [{"queues": ["audit.#"], **total}]}

    said = at_stake.verdict(told, limits)

    assert said.startswith(text)
    assert ("no violation seen" in said) is ("no violation seen" in text)
