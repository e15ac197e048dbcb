"""The stored estimate: whole or not there, one for each site, never taken for another."""

import json
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.core.quantities import Figures, Horizon, Quantity
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.result import Estimate, EstimateAnswer, SeenWindow, Verdict
from dr_ctl.rpo.estimate.stored import place, store, stored
from dr_ctl.settings.model import Place
from tests.rpo.files import newest_first, usable_files

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
    told = request.Request(history=str(tmp_path), conf={"spark.hadoop.fs.s3a.secret.key": "s"})

    estimating = request.Estimating(told)
    estimating._process.wait(20)
    answer = estimating.answer()
    estimating.end()

    assert request.Request.from_json(answer["heard"]) == told
    assert answer["words"] == ["-c"]
    assert [*tmp_path.iterdir()] == []
