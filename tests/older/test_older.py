"""What the version before left on disk and on the brokers, recorded by `record`: read, told, and gone on with today."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.clock import SystemClock
from dr_ctl.engine.runs import Runs
from dr_ctl_lab.played import PlayedTwin
from tests.conftest import Command
from tests.twin.conftest import prompt
from tests.twin.matrix import paused, serving
from tests.twin.subject import until

RECORDED = Path(__file__).parent / "recorded"
HOW_ENDED = {"moved": ["ok", "ok", "aborted", "open"], "left-open": ["open"], "lost": ["ok"]}
HEADLINES = {
    "ok": "The wanted state holds, and that was verified",
    "aborted": "Aborted: all that the run changed was undone",
    "open": "Not ended: under way, or cut off",
}
EXPIRES = re.compile(r'(expires\\*":)\d+')
LEASE_MS = 60_000


def settings(history: Path) -> Path:
    """Of an installation that nobody asks for anything."""
    broker = {"name": "orders-1", "username": "a", "password": {"plain": "b"}, "clients": ["clients"]}
    urls = {site: f"http://127.0.0.1:1/{site}/jolokia" for site in ("london", "paris")}
    sites = {site: {"brokers": [{**broker, "jolokia": url}]} for site, url in urls.items()}
    told = {"version": 1, "name": "twin", "topology": "artemis-mirror", "sites": sites}
    told["objectives"] = {"loss": {"messages": 0, "age": "30s"}, "recovery": "2m"}
    path = history.parent / "dr-ctl.yaml"
    path.write_text(yaml.safe_dump({**told, "history": {"path": history.name}}), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Older:
    """A twin that stands as the one of the recording stood at its end, with its STATE and its history."""

    twin: PlayedTwin
    dr_ctl: Command
    runs: list[str]

    @property
    def serving(self) -> list[str]:
        return list(serving(self.twin))


@pytest.fixture
def older(tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Older]]:
    """The run's lock has not run out, and is of this STATE: its process has just died."""
    twins: list[PlayedTwin] = []

    def stand(name: str) -> Older:
        recorded = json.loads((RECORDED / name / "changes.json").read_text(encoding="utf-8"))
        shutil.copytree(RECORDED / name / "state", tmp_path / "state")
        twin = PlayedTwin.up(tmp_path / "twin", topology=recorded["topology"])
        twins.append(twin)
        if (RECORDED / name / "history").exists():
            shutil.copytree(RECORDED / name / "history", twin.directory / "history")
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        if name == "lost":
            twin.kill("london")
            until(lambda: not twin.host("paris").broker.attached)
        runs = Runs(tmp_path / "state", SystemClock())
        was = f"{(tmp_path / 'state' / 'id').read_text(encoding='utf-8')}-{recorded['inode']}"
        text = json.dumps(recorded["changes"]).replace(was, runs.identity())
        text = EXPIRES.sub(rf"\g<1>{int(time.time() * 1000) + LEASE_MS}", text)
        for site, bean, operation, arguments in json.loads(text):
            call = {"type": "exec", "mbean": bean, "operation": operation, "arguments": arguments}
            twin.admin(site)._call(call)
        return Older(twin, inside, [each.name for each in runs.all()])

    prompt(monkeypatch)
    yield stand
    for twin in twins:
        twin.down()


@pytest.mark.parametrize("name", HOW_ENDED)
def test_past_runs_are_listed_shown_verified_and_reported(tmp_path: Path, inside: Command, name: str) -> None:
    shutil.copytree(RECORDED / name / "state", tmp_path / "state")
    names = sorted(path.name for path in (tmp_path / "state" / "runs").iterdir())

    listed, verified = inside("runs", "list"), inside("runs", "verify")

    rows = listed.document["data"]["runs"]
    assert [(row["run"], row["outcome"]) for row in rows] == list(zip(names, HOW_ENDED[name], strict=True))
    verdicts = ["open" if how == "open" else "whole" for how in HOW_ENDED[name]]
    assert [row["verdict"] for row in verified.document["data"]["runs"]] == verdicts
    for each, how in zip(names, HOW_ENDED[name], strict=True):
        shown, reported = inside("runs", "show", each), inside("runs", "report", each)
        assert (shown.code, shown.document["data"]["outcome"], reported.code) == (0, how, 0)
        steps = {step["step"]: step["event"] for step in shown.document["data"]["steps"]}
        assert steps["06-fence" if "swapover" in each else "05-fence"] in ("succeeded", "undone")
        page = Path(reported.document["data"]["report"]).read_text(encoding="utf-8")
        assert HEADLINES[how] in page
        assert "left out" not in page


@pytest.mark.spark
@pytest.mark.deep
def test_the_history_is_read_and_says_what_it_said_then(tmp_path: Path) -> None:
    history = tmp_path / "history"
    shutil.copytree(RECORDED / "moved" / "history", history)
    then = json.loads((history / "_estimate-london.json").read_text(encoding="utf-8"))["data"]

    words = ["--config", str(settings(history)), "rpo", "estimate", "--json"]
    ended = subprocess.run([sys.executable, "-m", "dr_ctl", *words], capture_output=True, text=True, check=False)

    now = json.loads(ended.stdout)["data"]
    # Then "missed"; five seconds of looks with nothing likely lost cannot tell.
    assert (ended.returncode, now["verdict"]) == (22, "unknown")
    assert {**_as_then(now), "stale_s": 0} == {**_as_then(then), "stale_s": 0}


def _as_then(told: Any) -> Any:
    """Without what has been told only since, or is told by another rule: likely figures, intervals of short histories,
    the time to drain by the rate of the link instead of the traffic's, the verdict."""
    if isinstance(told, dict):
        since = ("likely", "ci95", "drain_s", "verdict", "queues", "advice", "outage")
        return {key: _as_then(each) for key, each in told.items() if key not in since}
    return [_as_then(each) for each in told] if isinstance(told, list) else told


def test_status_tells_of_an_open_run_its_pauses_its_lock_and_the_stored_estimate(
    older: Callable[[str], Older],
) -> None:
    at = older("moved")
    at.twin.open_clients("london")  # an estimate is shown of a site that serves

    status = at.dr_ctl("status")

    data, open_run = status.document["data"], at.runs[-1]
    assert (status.code, data["open_run"]) == (0, open_run), status.document
    told = {each["id"]: each["text"] for each in status.document["findings"]}
    assert "interrupted" in told["DR-RUN-003"]
    assert f"london/orders-1: paused by {open_run}: " in told["DR-QUEUE-001"]
    assert {lock["run"] for lock in data["locks"]} == {open_run}
    then = json.loads((RECORDED / "moved" / "history" / "_estimate-london.json").read_text(encoding="utf-8"))
    assert data["estimate"]["total"] == then["data"]["total"]


@pytest.mark.parametrize("name", ["moved", "left-open"])
def test_a_run_that_it_left_open_is_resumed(older: Callable[[str], Older], name: str) -> None:
    at = older(name)
    before = at.serving

    resumed = at.dr_ctl("resume", "--yes")

    assert (resumed.code, resumed.document["run"]) == (0, at.runs[-1]), resumed.document
    assert (before, at.serving, paused(at.twin)) == ([], ["paris"], [])
    assert resumed.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
    assert at.dr_ctl("runs", "verify", at.runs[-1]).document["data"]["runs"][0]["verdict"] == "whole"
    assert at.dr_ctl("runs", "report", at.runs[-1]).code == 0


@pytest.mark.parametrize("name", ["moved", "left-open"])
def test_a_run_that_it_left_open_is_aborted(older: Callable[[str], Older], name: str) -> None:
    at = older(name)
    before = at.serving

    aborted = at.dr_ctl("abort", "--yes")

    assert (aborted.code, aborted.document["run"]) == (0, at.runs[-1]), aborted.document
    assert (before, at.serving, paused(at.twin)) == ([], ["london"], [])
    assert aborted.document["data"]["undone"] is True
    assert at.dr_ctl("runs", "list").document["data"]["runs"][-1]["outcome"] == "aborted"
    assert at.dr_ctl("runs", "verify", at.runs[-1]).document["data"]["runs"][0]["verdict"] == "whole"


def test_its_debts_are_told_from_the_brokers_and_from_state_and_paid(older: Callable[[str], Older]) -> None:
    at = older("lost")

    seen = at.dr_ctl("status").document["debts"]
    at.twin.kill("paris")
    remembered = at.dr_ctl("status").document["debts"]
    at.twin.start("paris")
    at.twin.open_clients("paris")
    at.twin.start("london")
    paid = at.dr_ctl("reinstate", "london", "--yes")

    assert [(debt["kind"], debt["site"], debt["kept_at"]) for debt in seen] == [
        ("fence", "london", "paris"),
        ("quarantine", "london", "paris"),
    ]
    assert remembered == seen
    assert (paid.code, paid.document["debts"], at.serving) == (0, [], ["paris"]), paid.document
    assert at.dr_ctl("status").document["debts"] == []
