"""The results of an estimate: patterns of queues, verdicts, and the shape of the JSON document."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dr_ctl.core.patterns import matches, pattern_regex
from dr_ctl.rpo.core.quantities import Figures, Horizon, Quantiles, Quantity
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import (
    ClassEstimate,
    Estimate,
    EstimateAnswer,
    FlowEstimate,
    LossLimit,
    Outage,
    QueueShare,
    SeenWindow,
    Verdict,
    verdict_of,
)
from dr_ctl.rpo.pipeline.make import reading

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNLIKELY = dict.fromkeys(("now", "p50", "p95", "p99", "max"))
UNKNOWN_QUANTITY = {**UNLIKELY, "ci95": dict.fromkeys(("p50", "p95", "p99")), "likely": UNLIKELY}


def figures(loss: int | None = 0, age_s: float | None = 0.0) -> Figures:
    return Figures(Quantity(p99=loss), Quantity(p99=age_s), Quantity(), Quantity(), Horizon(300))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("orders.#", ("orders.new", "orders.new.eu", "orders"), ("ordersnew",)),
        ("#", ("anything.at.all",), ()),
        ("#.dead", ("dead", "orders.new.dead"), ("undead",)),
        ("a.#.b", ("a.b", "a.x.y.b"), ()),
        ("a.*.b", ("a.x.b",), ("a.b", "a.x.y.b")),
        ("*", ("orders",), ("orders.new",)),
        ("orders", ("orders",), ("orders.new",)),
        ("or+ers.[x]", ("or+ers.[x]",), ()),
        ("or+ers", (), ("orrers",)),
    ],
)
def test_a_pattern_reads_queues_by_words(pattern: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    assert [each for each in (*inside, *outside) if matches([pattern], each)] == [*inside]


def test_a_pattern_is_anchored_at_both_ends() -> None:
    assert not re.search(pattern_regex("orders"), ".my.orders.new")


def told(most: float | None, likely: float | None = None) -> Quantity:
    return Quantity(p99=most, likely=Quantiles(p99=likely))


@pytest.mark.parametrize(
    ("loss", "age_s", "limit", "expected"),
    [
        (told(10), told(0.0), LossLimit(messages=10), Verdict.MET),
        (told(11, 10), told(0.0), LossLimit(messages=10), Verdict.UNKNOWN),  # 10 likely, 11 at most: nobody can tell
        (told(214, 11), told(0.0), LossLimit(messages=10), Verdict.MISSED),
        (told(0), told(30.0, 2.0), LossLimit(age_s=30), Verdict.MET),
        (told(0), told(339.0, 0.25), LossLimit(messages=10, age_s=30), Verdict.UNKNOWN),
        (told(0), told(339.0, 30.1), LossLimit(messages=10, age_s=30), Verdict.MISSED),
        (told(None), told(0.0), LossLimit(messages=10), Verdict.UNKNOWN),
        (told(None), told(31.0, 31.0), LossLimit(messages=10, age_s=30), Verdict.MISSED),
        (told(None), told(None), LossLimit(), Verdict.MET),
    ],
)
def test_a_limit_is_missed_by_what_is_likely_and_met_by_the_bound(
    loss: Quantity, age_s: Quantity, limit: LossLimit, expected: Verdict
) -> None:
    assert verdict_of(Figures(loss, age_s, Quantity(), Quantity(), Horizon(300)), limit) is expected


def test_one_missed_class_is_enough() -> None:
    assert Verdict.worst([Verdict.MET, Verdict.MISSED, Verdict.UNKNOWN]) is Verdict.MISSED
    assert Verdict.worst([Verdict.MET, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert Verdict.worst([]) is Verdict.MET


def test_the_document_has_the_shape_that_scripts_rely_on() -> None:
    some = Figures(
        Quantity(now=1, p50=2, p95=3, p99=4, max=5, ci95={"p50": None, "p95": None, "p99": (3, 6)}),
        Quantity(),
        Quantity(),
        Quantity(),
        Horizon(300),
    )
    given = Estimate(
        site="london",
        read_at=NOON,
        stale_s=1.5,
        window=SeenWindow(NOON, NOON, 7, 60.0),
        verdict=None,
        total=some,
        flows=(FlowEstimate("london", "orders-1", "*", some),),
        classes=(ClassEstimate(("audit.#",), Verdict.MET, some),),
        queues=(QueueShare("orders-1", "audit.a", 0.75, 4),),
        advice=("Look.",),
        outage=Outage(NOON, "down", NOON),
    )

    ends = {"p50": None, "p95": None, "p99": [3, 6]}
    shape = {
        "loss": {"now": 1, "p50": 2, "p95": 3, "p99": 4, "max": 5, "ci95": ends, "likely": UNLIKELY},
        **dict.fromkeys(("age_s", "duplicates", "drain_s"), UNKNOWN_QUANTITY),
        "horizon": {"seconds": 300, "loss": UNKNOWN_QUANTITY, "age_s": UNKNOWN_QUANTITY},
        "loss_risk": 1,
        **dict.fromkeys(("unexplained", "duplicate_risk", "recovery_point_s", "recovery_time_s")),
    }
    noon = "2026-03-01T12:00:00.000Z"
    assert json.loads(json.dumps(EstimateAnswer(given).as_json())) == {
        "site": "london",
        "read_at": noon,
        "stale_s": 1.5,
        "window": {"from": noon, "to": noon, "samples": 7, "covered_s": 60.0},
        "verdict": None,
        "total": shape,
        "flows": [{"from": "london", "pair": "orders-1", "name": "*", **shape}],
        "classes": [{"queues": ["audit.#"], "verdict": "met", **shape}],
        "queues": [{"pair": "orders-1", "name": "audit.a", "share": 0.75, "most": 4}],
        "advice": ["Look."],
        "outage": {"last_served": noon, "role": "down", "seen_at": noon},
    }


def test_without_history_the_verdict_is_unknown_and_spark_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    with reading() as make:
        answer = estimate(Request(history=tmp_path / "history"), make)

    assert answer.estimate is None
    assert answer.verdict is Verdict.UNKNOWN
    assert [finding.id for finding in answer.findings] == ["DR-RPO-001"]
    assert answer.as_json()["verdict"] == "unknown"
