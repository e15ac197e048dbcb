"""The results of an estimate: patterns of queues, verdicts, the JSON document, and what is stored of it."""

import json
import re
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.patterns import matches, pattern_regex
from dr_ctl.rpo.core.quantities import Figures, Horizon, Quantiles, Quantity
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import (
    Estimate,
    EstimateAnswer,
    LossClass,
    LossLimit,
    Objectives,
    SeenWindow,
    Verdict,
    verdict_of,
)
from dr_ctl.rpo.estimate.stored import place, store, stored
from dr_ctl.rpo.pipeline.make import reading
from dr_ctl.settings.model import Place
from tests.rpo.files import newest_first, usable_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


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


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def answer(site: str = "london", lost: int = 7) -> EstimateAnswer:
    figures = Figures(Quantity(now=lost, p99=9), Quantity(now=0.5, p99=1.5), Quantity(), Quantity(), Horizon(300))
    window = SeenWindow(NOW, NOW, 1, 0.0)
    return EstimateAnswer(Estimate(site, NOW, 0.0, window, Verdict.MET, figures, (), ()))


def test_what_was_stored_is_read_with_its_age(tmp_path: Path) -> None:
    store(Place.at(tmp_path), answer(), NOW)

    found = stored(tmp_path, "london")

    assert found.findings == ()
    told = found.stored.as_json(NOW + timedelta(seconds=90))
    assert (told["made_at"], told["age_s"]) == ("2026-03-01T12:00:00.000Z", 90.0)
    assert {key: told[key] for key in answer().as_json()} == answer().as_json()
    assert stat.S_IMODE(place(tmp_path, "london").stat().st_mode) == 0o600


def test_each_site_has_its_own_and_keeps_it_where_there_is_no_other_and_the_history_is_not_disturbed(
    tmp_path: Path,
) -> None:
    store(Place.at(tmp_path), answer("london", 1), NOW)
    store(Place.at(tmp_path), answer("paris", 2), NOW)
    store(Place.at(tmp_path), EstimateAnswer(None), NOW + timedelta(hours=1))

    assert stored(tmp_path, "01").stored is None
    assert [stored(tmp_path, site).stored.data["total"]["loss"]["now"] for site in ("london", "paris")] == [1, 2]
    assert usable_files(tmp_path) == ([], [])
    assert list(newest_first(tmp_path, "london")) == []
    place(tmp_path, "paris").rename(place(tmp_path, "london"))
    assert stored(tmp_path, "london").stored is None, "it is of another site"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps({"made_at": "x", "data": {}, "findings": []})],
    ids=["empty", "torn", "list", "nothing", "no moment"],
)
def test_one_that_cannot_be_read_is_named_and_no_estimate(tmp_path: Path, text: str) -> None:
    place(tmp_path, "london").write_text(text)

    found = stored(tmp_path, "london")

    assert found.stored is None
    assert [finding.id for finding in found.findings] == ["DR-RPO-017"]
    assert str(place(tmp_path, "london")) in found.findings[0].text


def test_where_it_cannot_be_written_the_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("no folder")

    with pytest.raises(EnvironmentFault, match="cannot be stored"):
        store(Place.at(tmp_path / "none"), answer(), NOW)


def test_what_the_worker_is_asked_stands_in_no_file_and_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import json, sys; print(json.dumps({'heard': sys.stdin.readline(), 'words': sys.argv}))"
    monkeypatch.setattr(request, "command", lambda: [sys.executable, "-c", script])
    limits = Objectives(LossLimit(0, 30.0), (LossClass(("a.#", "b"), LossLimit(5)),))
    conf = {"spark.hadoop.fs.s3a.secret.key": "s"}
    told = request.Request(history=str(tmp_path), since=NOW, objectives=limits, exclude=("x",), conf=conf)

    estimating = request.Estimating(told)
    estimating._process.wait(20)
    answer = estimating.answer()
    estimating.end()

    assert request.Request.from_json(answer["heard"]) == told
    assert answer["words"] == ["-c"]
    assert [*tmp_path.iterdir()] == []
