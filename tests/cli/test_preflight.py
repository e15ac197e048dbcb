"""Estimates: beside a run's checks, as a process that hangs; stored, in `status` and plans; and `rpo reconcile`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.application import estimates
from dr_ctl.application.estimates import NoEstimator, Preflight
from dr_ctl.cli import rpo
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.system import system
from dr_ctl.engine import executor
from dr_ctl.engine.ports import Done, NotNeeded
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.request import store, stored_at
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.ledgers.reconcile import KINDS, Category, Reconciled
from dr_ctl.settings.loader import load
from dr_ctl.settings.model import HistoryLocation
from tests.cli.conftest import Shell
from tests.cli.conftest import begun as killed_after
from tests.cli.sites import Sites
from tests.rpo.files import write
from tests.rpo.test_estimate import WITHIN_S, history, running, waited
from tests.rpo.test_result import answer
from tests.scenarios.stage import NoEstimate
from tests.timeouts import runbooks

DEAF = """
import os, signal, subprocess, sys, time
if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import signal, time\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
                  "open({ready!r}, 'w').close()\\ntime.sleep(600)", {ready!r}])
time.sleep(600)
"""


@pytest.fixture
def deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the worker's place, a process that hangs and hears no SIGTERM, with a child that does not either."""
    ready = tmp_path / "ready"
    script = DEAF.format(ready=str(ready))
    monkeypatch.setattr(request, "command", lambda: [sys.executable, "-c", script])
    monkeypatch.setattr(executor, "ESTIMATE_WITHIN_S", 2.0)
    return ready


@pytest.mark.wire
@pytest.mark.parametrize("is_awaited", [True, False])
def test_one_that_hangs_is_ended_in_time(dr_ctl: Shell, sites: Sites, deaf: Path, is_awaited: bool) -> None:
    write(history("london"), dr_ctl.folder / "history")
    preflight = Preflight(load(dr_ctl.folder / "dr-ctl.yaml"), "london")
    preflight.begin()
    waited(deaf.exists)
    assert len(running(deaf)) == 2
    began = time.monotonic()

    if is_awaited:
        outcome = preflight.end(within_s=0.2, wait=time.sleep)
        assert isinstance(outcome, NotNeeded)
        assert [finding.id for finding in outcome.findings] == ["DR-RPO-008"]
    else:
        preflight.abandon()
        preflight.abandon()

    assert time.monotonic() - began < 10
    waited(lambda: not running(deaf))


class Counted(NoEstimate):
    begun = 0

    def __init__(self, *request: object) -> None:
        super().__init__(*request)
        Counted.begun += 1


MOVE = ("swapover", "--to", "paris")
ESCALATE = ("escalate", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
FENCED = ("quiesce", "fence")


@pytest.mark.parametrize(
    ("minutes_ago", "died_after", "words", "is_made", "says"),
    [
        (None, (), MOVE, True, "no estimate: "),
        (3, (), MOVE, False, "as stored 3 min"),
        (16, (), MOVE, True, "no estimate: "),
        (-10, (), MOVE, True, "no estimate: "),  # of a clock that ran ahead
        (None, ("quiesce",), ("resume",), True, "no estimate: "),
        (None, FENCED, ("resume",), False, "skipped: clients are out since this run's fence"),
        (None, (*FENCED, "drain"), ("resume",), False, "skipped: clients are out since this run's fence"),
        (None, FENCED, ("abort",), False, ""),
        (None, FENCED, ESCALATE, False, ""),
    ],
)
def test_one_is_made_where_none_is_fresh_and_clients_are_not_out(
    dr_ctl: Shell,
    sites: Sites,
    monkeypatch: pytest.MonkeyPatch,
    minutes_ago: int | None,
    died_after: tuple[str, ...],
    words: tuple[str, ...],
    is_made: bool,
    says: str,
) -> None:
    monkeypatch.setattr(Counted, "begun", 0)
    monkeypatch.setattr("dr_ctl.application.estimates.Estimating", Counted)
    write(history("london"), dr_ctl.folder / "history")
    if minutes_ago is not None:
        keep(dr_ctl, minutes_ago=minutes_ago)
    if died_after:
        killed_after(dr_ctl, sites, *died_after)

    ended = dr_ctl(*words, "--yes", "--json")

    assert (ended.code, Counted.begun) == (0, is_made), ended.document
    assert says in dr_ctl("runs", "show", ended.document["run"]).out


def test_what_a_stored_estimate_found_is_told_with_it(dr_ctl: Shell, sites: Sites) -> None:
    (dr_ctl.folder / "history").mkdir()
    finding = Finding("DR-RPO-002", Severity.WARNING, "two files were not read", "See them.")
    store(HistoryLocation.at(dr_ctl.folder / "history"), replace(answer(lost=7), findings=(finding,)), system().now())
    preflight = Preflight(load(dr_ctl.folder / "dr-ctl.yaml"), "london")
    preflight.begin()

    outcome = preflight.end(within_s=0, wait=pytest.fail)

    assert isinstance(outcome, Done)
    assert outcome.findings == (finding,)


@pytest.mark.wire
@pytest.mark.spark
@pytest.mark.deep
def test_a_swapover_ends_a_spark_that_hangs_first(dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(dr_ctl.folder / "scratch"))
    (dr_ctl.folder / "scratch").mkdir()
    write(history("london"), dr_ctl.folder / "history")
    books = runbooks(dr_ctl.folder / "runbooks", "- estimate: {}", "- estimate: {within: 8s}")
    seen: list[list[int]] = []
    sites.london.before_change = lambda operation: seen.append(running(dr_ctl.folder / "scratch"))
    with socket.create_server(("127.0.0.1", 0)) as master:  # it takes connections and never says a word
        url = f"spark://127.0.0.1:{master.getsockname()[1]}"
        dr_ctl.add(runbooks=books, spark={"master": url, "conf": {"spark.driver.host": "127.0.0.1"}})

        moved = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert moved.code == 0, moved.document
    assert "DR-RPO-008" in moved.ids
    assert seen
    assert not any(seen), "Java ran on while clients were kept out"
    assert running(dr_ctl.folder / "scratch") == []


@pytest.mark.wire
@pytest.mark.spark
@pytest.mark.deep
def test_ctrl_c_ends_an_estimate_and_its_java(dr_ctl: Shell, sites: Sites) -> None:
    write(history("london"), dr_ctl.folder / "history")
    scratch = dr_ctl.folder / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "dr_ctl", "--config", str(dr_ctl.folder / "dr-ctl.yaml"), "rpo", "estimate"]
    asked = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True)
    waited(lambda: asked.poll() is not None or any(scratch.glob("dr-ctl-spark-*/blockmgr-*")))
    assert asked.poll() is None

    os.killpg(asked.pid, signal.SIGINT)  # as a terminal does

    assert asked.wait(WITHIN_S) == 130
    waited(lambda: not running(scratch))
    assert not any(scratch.glob("dr-ctl-spark-*"))


def keep(dr_ctl: Shell, *, minutes_ago: float = 3, lost: int = 7) -> None:
    (dr_ctl.folder / "history").mkdir(exist_ok=True)
    store(
        HistoryLocation.at(dr_ctl.folder / "history"),
        answer(lost=lost),
        system().now() - timedelta(minutes=minutes_ago),
    )


def test_status_and_plan_show_a_stored_estimate_with_its_age(dr_ctl: Shell, sites: Sites) -> None:
    without = dr_ctl("status", "--json")
    keep(dr_ctl)

    items, text = dr_ctl("status", "--json"), dr_ctl("status")
    planned = dr_ctl("plan", "swapover", "--to", "paris", "--json")

    assert without.document["data"]["estimate"] is None
    estimate = items.document["data"]["estimate"]
    assert estimate["total"]["loss"]["now"] == 7
    assert 180 <= estimate["age_s"] < 240
    assert "estimate of london, 3 min" in text.out
    assert " old: p99 of all readings: messages lost 9, age of the oldest 1.50 s" in text.out
    assert "drain not known; objectives met" in text.out
    assert "messages lost 7" not in text.out, "what a failover would cost now is its own figure"
    assert "DR-RPO-018" not in items.ids
    assert planned.document["data"]["estimate"]["site"] == "london"


def test_one_made_in_an_outage_says_as_of_when_and_an_old_or_torn_one_is_a_finding(dr_ctl: Shell, sites: Sites) -> None:
    keep(dr_ctl, minutes_ago=120)
    file = stored_at(dr_ctl.folder / "history", "london")
    stored = json.loads(file.read_text())
    outage = {"last_served": "2026-03-01T18:55:53.000Z", "role": "down", "seen_at": "2026-03-01T18:56:00.000Z"}
    stored["data"]["outage"] = outage
    file.write_text(json.dumps(stored))
    old, text = dr_ctl("status", "--json"), dr_ctl("status")
    file.write_text("{")
    torn = dr_ctl("status", "--json")

    assert old.document["data"]["estimate"]["outage"] == outage
    as_of = "as of 2026-03-01 18:55:53 UTC, before the outage of london; not the loss bound of a failover now"
    assert as_of in " ".join(text.out.split())
    assert "DR-RPO-018" in old.ids
    assert ("DR-RPO-017" in torn.ids, torn.document["data"]["estimate"]) == (True, None)


def test_a_failovers_estimate_is_the_stored_one_and_asks_nobody(dr_ctl: Shell, sites: Sites) -> None:
    estimator = NoEstimator(load(dr_ctl.folder / "dr-ctl.yaml"), "london")
    without = estimator.end(within_s=0, wait=pytest.fail)
    keep(dr_ctl)
    estimator.begin()

    outcome = estimator.end(within_s=0, wait=pytest.fail)

    assert isinstance(without, NotNeeded)
    assert "no estimate of london is stored" in without.text
    assert isinstance(outcome, Done)
    estimate = outcome.evidence["estimate"]
    assert isinstance(estimate, dict)
    assert estimate["made_at"] < system().now().isoformat()
    assert outcome.text.endswith("the bounds hold now")
    assert "messages lost" not in outcome.text


CLASSES = (LossClass(("audit.#",), LossLimit(8, 2.0)),)
LIKELY: dict[str, Any] = {"loss": {"p99": 214, "likely": {"p99": 15}}, "age_s": {"p99": 0.5, "likely": {"p99": 0.1}}}
SEEN: dict[str, Any] = {"loss": {"p99": 9}, "age_s": {"p99": 1.5}}


@pytest.mark.parametrize(
    ("verdict", "total", "limits", "text"),
    [
        ("missed", SEEN, Objectives(LossLimit(9, 1.0), CLASSES),
         "objectives missed: the oldest 1.50 s old where 1.00 s are allowed; 9 message(s) of audit.# lost where 8 "),
        (None, SEEN, None, "no objectives set"),
        ("unknown", LIKELY, Objectives(LossLimit(200, 1.0), ()),
         "objectives: cannot tell: messages lost likely 15, at most 214, where 200 are allowed"),
        ("missed", LIKELY, Objectives(LossLimit(14, 1.0), ()),
         "objectives missed: likely 15 message(s) lost where 14 are allowed"),
        ("unknown", {"loss": {"p99": 0}, "age_s": {"p99": 0}}, Objectives(LossLimit(0, 1.0), ()),
         "objectives: not known (too few readings, or too late); no violation seen"),
        ("unknown", {"loss": {"p99": None}, "age_s": {"p99": 0}}, Objectives(LossLimit(0, 1.0), ()),
         "objectives: not known"),
    ],
)  # fmt: skip
def test_the_words_on_objectives(
    verdict: str | None, total: dict[str, Any], limits: Objectives | None, text: str
) -> None:
    options = {"verdict": verdict, "total": total, "classes": [{"queues": ["audit.#"], **total}]}

    said = estimates.verdict(options, limits)

    assert said.startswith(text)
    assert ("no violation seen" in said) is ("no violation seen" in text)


def found(tmp_path: Path, events: int = 9, **counts: int) -> Reconciled:
    parts = {
        kind: Category(counts.get(kind, 0), tmp_path / f"{kind}.jsonl", {"q": counts[kind]} if kind in counts else {})
        for kind in KINDS
    }
    return Reconciled(parts, {"sent": events} if events else {}, (Finding("DR-RPO-015", Severity.INFO, "x"),))


@pytest.mark.parametrize(
    ("counts", "code", "summary"),
    [
        ({}, 0, "nothing lost, nothing doubled"),
        ({"recovered": 2}, 0, "2 recovered"),
        ({"unexpected": 2}, 0, "2 unexpected"),
        ({"unknown": 1}, 22, "1 unknown"),
        ({"lost": 3, "unknown": 1}, 11, "3 lost, 1 unknown"),
        ({"doubled": 4}, 11, "4 doubled"),
    ],
)
def test_its_end_says_what_was_found(
    dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], code: int, summary: str
) -> None:
    monkeypatch.setattr(rpo.ledgers, "reconcile", lambda *given, **more: found(dr_ctl.folder, **counts))

    ended = dr_ctl("rpo", "reconcile", "x.jsonl", "--json")

    document = ended.document
    assert (ended.code, document["exit_code"], document["summary"]) == (code, code, summary)
    assert dr_ctl("rpo", "reconcile", "x.jsonl").out.splitlines()[-1].startswith("messages were lost") is (code == 11)
    assert {kind: document["data"][kind]["count"] for kind in KINDS} == {kind: counts.get(kind, 0) for kind in KINDS}
    assert all(document["data"][kind]["file"].endswith(f"{kind}.jsonl") for kind in KINDS)
    assert ("DR-RPO-016" in ended.ids) == ("unexpected" in counts)


def test_the_ids_go_under_the_state_unless_told_otherwise_and_no_ledger_ends_it_before_spark(
    dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dr_ctl.folder / "a.txt").write_text("queue,id\n")
    missing, wrong = dr_ctl("rpo", "reconcile", "none.jsonl", "--json"), dr_ctl("rpo", "reconcile", "a.txt", "--json")
    asked: list[Path] = []
    monkeypatch.setattr(
        rpo.ledgers, "reconcile", lambda options, out, **more: asked.append(out) or found(dr_ctl.folder)
    )
    for more in ((), ("--out", "here")):
        dr_ctl("rpo", "reconcile", "x.jsonl", *more)

    assert (asked[0].parent, asked[1]) == (dr_ctl.state / "reconcile", Path("here"))
    assert (missing.code, wrong.code) == (2, 2)
    assert "none.jsonl" in missing.document["findings"][0]["text"]
    assert "a.txt: line 1" in wrong.document["findings"][0]["text"]
