"""Workloads move with the service of a topology that knows nothing of them: real commands, the whole command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.cli import asking
from dr_ctl.engine.entries import read
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.plan import Ask, Call, PlannedStep
from tests.folders.test_folders import QUEUES, Command, Killed, Sites, sites
from tests.patience import impatient
from tests.topologies.workloads.work import Work

__all__ = ["sites"]  # the fixture
BILLING, MAILER = "billing", "mailer"


class Works:
    """At both sites a billing, which is a singleton, and a mailer that works on the orders; those of London run."""

    def __init__(self, folder: Path) -> None:
        self.settings, self.log = folder / "dr-ctl.yaml", folder / "workloads.log"
        self.log.touch()
        self.at = {
            (site, name): Work(folder, site, name, running=site == "london")
            for site in ("london", "paris")
            for name in (BILLING, MAILER)
        }
        self.write(BILLING, singleton=True)

    def write(self, name: str, **more: Any) -> None:
        """Say more of one workload, at both sites."""
        told = yaml.safe_load(self.settings.read_text(encoding="utf-8"))
        for site, part in told["sites"].items():
            had = {each["name"]: each for each in part.get("workloads", ())}
            for (of, each), work in self.at.items():
                if of == site:
                    had.setdefault(each, work.told(**({"queues": ["orders"]} if each == MAILER else {})))
            had[name] |= more
            part["workloads"] = list(had.values())
        self.settings.write_text(yaml.safe_dump(told), encoding="utf-8")

    @property
    def running(self) -> list[tuple[str, str]]:
        return [key for key, work in self.at.items() if work.runs]

    @property
    def changes(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()


LONDON, PARIS = [("london", BILLING), ("london", MAILER)], [("paris", BILLING), ("paris", MAILER)]


@pytest.fixture
def works(sites: Sites, tmp_path: Path) -> Works:
    return Works(tmp_path)


def ids(document: dict[str, Any]) -> list[str]:
    return [each["id"] for each in document["findings"] if each["id"].startswith("DR-WORK")]


def test_they_are_shown_by_status_plan_and_validate(works: Works, inside: Command) -> None:
    status, plan = inside("status"), inside("swapover", "--to", "paris", "--dry-run")
    validate = inside("validate", "--verbose")

    told = {(each["site"], each["name"]): each["state"] for each in status.document["data"]["workloads"]}
    assert told == {key: "running" if key[0] == "london" else "stopped" for key in works.at}
    steps = {step["verb"]: step for step in plan.document["data"]["plan"]["steps"]}
    calls = {
        verb: [(each["goal"], each["thing"], each["site"]) for each in step["calls"]] for verb, step in steps.items()
    }
    assert calls["quiesce"][:3] == [
        ("stop", BILLING, "london"),
        ("stop", MAILER, "london"),
        ("pause", "bills", "london"),
    ]
    assert calls["activate"][-2:] == [("start", BILLING, "paris"), ("start", MAILER, "paris")]
    assert [each["goal"] for each in steps["quiesce"]["inverse"]] == ["resume", "resume", "start", "start"]
    assert steps["quiesce"]["calls"][0]["run"] == [str(works.at["london", BILLING].folder / "stop")]
    checks = {(each["name"], each["where"]): each["verdict"] for each in validate.document["data"]["checks"]}
    assert checks[f"it can be told whether {MAILER} runs", "paris"] == "holds"
    assert checks["a singleton runs at one site only", BILLING] == "holds"
    assert (works.changes, ids(status.document), ids(validate.document)) == ([], [], [])


def test_they_move_there_and_back(sites: Sites, works: Works, inside: Command) -> None:
    there = inside("swapover", "--to", "paris", "--yes")
    at_paris, changes = works.running, works.changes
    again = inside("swapover", "--to", "paris", "--yes")
    back = inside("swapover", "--to", "london", "--yes")

    assert (there.code, again.code, back.code) == (0, 0, 0), (there.told, back.told)
    assert (at_paris, works.running) == (PARIS, LONDON)
    assert changes == [
        "stop billing at london",
        "stop mailer at london",
        "start billing at paris",
        "start mailer at paris",
    ]
    assert len(works.changes) == 8, "the second time nothing was called"
    report = Path(inside("runs", "report").document["data"]["report"]).read_text(encoding="utf-8")
    assert "billing, mailer stopped" in report
    assert "billing, mailer running" in report


@pytest.mark.parametrize("switch", ["stop.fails", "stop.hangs"])
def test_one_that_does_not_stop_ends_the_run_before_the_fence(
    sites: Sites, works: Works, inside: Command, switch: str
) -> None:
    works.write(MAILER, timeout="300ms")
    works.at["london", MAILER].switch(switch)
    before = sites.settable(sites.london)

    ended = inside("swapover", "--to", "paris", "--yes")

    assert (ended.code, ids(ended.document)) == (20, ["DR-WORK-003"]), ended.told
    assert (works.running, sites.serving, sites.settable(sites.london)) == (LONDON, ["london"], before)
    starts = ["start billing at london", "start mailer at london"]
    assert sorted(works.changes[-2:]) == starts, (
        "what had stopped runs again, and a stop that may come late is taken back"
    )
    assert ended.document["data"]["outage_s"] is None, "nobody was kept out"


def test_one_that_was_not_running_is_not_started_by_an_undo(works: Works, inside: Command) -> None:
    works.at["london", BILLING].set(running=False)
    works.at["london", MAILER].switch("stop.fails")

    ended = inside("swapover", "--to", "paris", "--yes")

    assert (ended.code, works.running) == (20, [("london", MAILER)]), ended.told


def test_one_that_cannot_be_started_again_is_said_by_the_end(
    works: Works, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, undo_s=0.3)
    works.at["london", MAILER].switch("stop.fails")
    works.at["london", BILLING].switch("start.fails")

    ended = inside("swapover", "--to", "paris", "--yes")

    assert ended.code == 23, ended.told
    assert "billing at london" in ended.document["summary"]


@pytest.mark.parametrize("words", [("swapover", "--to", "paris"), ("quiesce", "london"), ("failback", "--to", "paris")])
def test_a_singleton_at_two_sites_is_named_before_anything_is_moved(
    sites: Sites, works: Works, inside: Command, words: tuple[str, ...]
) -> None:
    works.at["paris", BILLING].set(running=True)

    ended, status = inside(*words, "--yes"), inside("status")

    assert ended.code == 10, ended.told
    assert ended.document["findings"][0]["id"] == "DR-WORK-001", ended.told
    assert "billing is a singleton, and it runs at london and paris" in ended.document["summary"]
    assert (works.changes, sites.serving) == ([], ["london"])
    assert "DR-WORK-001" in ids(status.document)


def test_what_is_not_a_singleton_may_run_at_both(works: Works, inside: Command) -> None:
    works.at["paris", MAILER].set(running=True)

    ended = inside("swapover", "--to", "paris", "--yes")

    assert (ended.code, ids(ended.document), works.running) == (0, ["DR-WORK-005"], PARIS), ended.told


@pytest.mark.parametrize("site", ["london", "paris"])
def test_what_cannot_be_read_is_not_taken_for_stopped(works: Works, inside: Command, site: str) -> None:
    works.at[site, MAILER].switch("state.broken")

    status, ended = inside("status"), inside("swapover", "--to", "paris", "--yes")
    fenced = inside("fence", "london", "--yes")

    states = {(each["site"], each["name"]): each["state"] for each in status.document["data"]["workloads"]}
    assert states[site, MAILER] == "not read"
    assert (ended.code, ids(ended.document), works.changes) == (10, ["DR-WORK-002"], []), ended.told
    assert fenced.code == 0, "a site is closed whatever runs there"


def test_one_that_does_not_start_is_told_of_a_site_that_serves_and_unfence_starts_it(
    sites: Sites, works: Works, inside: Command
) -> None:
    works.at["paris", BILLING].switch("start.fails")

    ended = inside("swapover", "--to", "paris", "--yes")
    after, status = works.running, inside("status")
    works.at["paris", BILLING].switch("start.fails", on=False)
    unfenced = inside("unfence", "paris", "--yes")

    assert (ended.code, ids(ended.document)) == (21, ["DR-WORK-004"]), ended.told
    assert (after, sites.serving) == ([("paris", MAILER)], ["paris"]), "the others are started all the same"
    assert ids(status.document) == ["DR-WORK-006"]
    assert (unfenced.code, works.running, sites.serving) == (0, PARIS, ["paris"]), unfenced.told


def test_an_unfence_that_cannot_start_one_undoes_nothing(sites: Sites, works: Works, inside: Command) -> None:
    works.at["london", MAILER].set(running=False)
    works.at["london", MAILER].switch("start.fails")

    ended = inside("unfence", "london", "--yes")

    assert (ended.code, sites.serving) == (21, ["london"]), ended.told


def test_one_that_was_started_again_keeps_the_gate_shut(sites: Sites, works: Works, inside: Command) -> None:
    """Something else starts it while the source is drained."""
    stop = works.at["london", MAILER].folder / "stop"
    works.settings.write_text(
        works.settings.read_text(encoding="utf-8") + "runbooks: ./runbooks\nhooks: {wake: {run: ['./wake']}}\n",
        encoding="utf-8",
    )
    book = (Path(__file__).parents[2] / "runbooks" / "swapover.yaml").read_text(encoding="utf-8")
    folder = works.settings.parent / "runbooks"
    folder.mkdir()
    (folder / "swapover.yaml").write_text(book.replace("  - verify:", "  - hook: wake\n  - verify:"), encoding="utf-8")
    wake = works.settings.parent / "wake"
    wake.write_text(f'#!/bin/sh\necho running > "{stop.parent}/state.now"\n', encoding="utf-8")
    wake.chmod(0o700)

    ended = inside("swapover", "--to", "paris", "--yes")

    assert (ended.code, ids(ended.document)) == (20, ["DR-WORK-008"]), ended.told
    assert (works.running, sites.serving) == (LONDON, ["london"])


def test_a_fence_beside_a_site_that_serves_stops_what_runs_there(sites: Sites, works: Works, inside: Command) -> None:
    assert inside("swapover", "--to", "paris", "--yes").code == 0
    works.at["london", MAILER].set(running=True)
    for queue in QUEUES:
        sites.london.file(f"doors/{queue}").touch()

    ended = inside("fence", "london", "--yes")

    assert (ended.code, works.running, sites.serving) == (0, PARIS, ["paris"]), ended.told


def test_an_activation_by_itself_stops_what_is_left_at_the_other(sites: Sites, works: Works, inside: Command) -> None:
    """Both sites are closed, as after a power cut, and what works on them came up by itself."""
    for queue in QUEUES:
        sites.london.file(f"doors/{queue}").unlink()

    ended = inside("activate", "paris", "--yes")

    assert (ended.code, works.running, sites.serving) == (0, PARIS, ["paris"]), ended.told


def test_an_undo_starts_nothing_beside_a_site_that_somebody_opened(
    sites: Sites, works: Works, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside("status")
    intents = Journal.intents

    def opening(self: Journal, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        if step.verb == "fence":
            sites.london.file("cut").touch()
            sites.london.add("outflow", "orders three")
            sites.paris.file("doors/orders").touch()
        return intents(self, step, calls)

    monkeypatch.setattr(Journal, "intents", opening)

    ended = inside("swapover", "--to", "paris", "--yes", "--timeout", "300ms")

    assert ended.code not in (0, 20, 24), ended.told
    assert (works.running, sites.serving) == ([], ["paris"])
    assert "billing; mailer not started at london" in ended.document["summary"]


def test_by_single_steps(sites: Sites, works: Works, inside: Command) -> None:
    quiesced = inside("quiesce", "london", "--yes")
    stopped = works.running
    unfenced = inside("unfence", "london", "--yes")
    again = works.running
    for words in (("quiesce", "london"), ("fence", "london"), ("drain", "--to", "paris"), ("activate", "paris")):
        ended = inside(*words, "--yes")
        assert ended.code == 0, ended.told

    assert (quiesced.code, stopped, unfenced.code, again) == (0, [], 0, LONDON), unfenced.told
    assert (works.running, sites.serving) == (PARIS, ["paris"])


class TestLost:
    @pytest.fixture
    def lost(self, sites: Sites, works: Works, inside: Command) -> Sites:
        """London's brokers are gone, and what works on them cannot be asked any more."""
        inside("status")
        sites.london.file("alive").unlink()
        for name in (BILLING, MAILER):
            works.at["london", name].switch("state.broken")
        return sites

    FAILOVER = ("failover", "--to", "paris", "--yes", "--accept-loss", "unknown")
    WORD = ("--presume-down", "london", "--reason", "its hosts are powered off")

    def test_its_workloads_are_started_at_the_other_and_said_to_be_out_of_reach(
        self, lost: Sites, works: Works, inside: Command
    ) -> None:
        ended = inside(*self.FAILOVER, *self.WORD)

        assert ended.code == 0, ended.told
        assert ids(ended.document) == ["DR-WORK-007", "DR-WORK-007"]
        assert [key for key in works.running if key[0] == "paris"] == PARIS
        assert not [line for line in works.changes if line.endswith("london")]

    def test_what_still_answers_there_is_stopped_first(self, lost: Sites, works: Works, inside: Command) -> None:
        works.at["london", BILLING].switch("state.broken", on=False)

        ended = inside(*self.FAILOVER)

        assert ended.code == 0, ended.told
        assert works.changes[0] == "stop billing at london"
        assert works.running == [("london", MAILER), *PARIS]

    def test_what_does_not_stop_there_keeps_nobody_from_being_served(
        self, lost: Sites, works: Works, inside: Command
    ) -> None:
        for name in (BILLING, MAILER):
            works.at["london", name].switch("state.broken", on=False)
            works.at["london", name].switch("stop.fails")

        ended = inside(*self.FAILOVER)

        assert (ended.code, ended.document["summary"].partition(",")[0]) == (21, "paris serves"), ended.told
        assert sorted(ids(ended.document)) == ["DR-WORK-003", "DR-WORK-003", "DR-WORK-004"]
        assert works.running == [*LONDON, ("paris", MAILER)], "the singleton is not started beside the other"

    def test_a_singleton_that_may_run_at_a_closed_site_is_not_started(
        self, sites: Sites, works: Works, inside: Command
    ) -> None:
        for queue in QUEUES:
            sites.london.file(f"doors/{queue}").unlink()
        works.at["london", BILLING].switch("state.broken")

        ended = inside(*self.FAILOVER)

        assert (ended.code, sites.serving) == (21, ["paris"]), ended.told
        assert sorted(ids(ended.document)) == ["DR-WORK-004", "DR-WORK-007"]
        assert ("paris", BILLING) not in works.running
        assert ("paris", MAILER) in works.running

    def test_a_failback_stops_what_runs_at_the_site_that_returns(
        self, lost: Sites, works: Works, inside: Command
    ) -> None:
        inside(*self.FAILOVER, *self.WORD)
        for queue in QUEUES:
            lost.london.file(f"doors/{queue}").unlink()
        lost.london.file("alive").touch()
        for name in (BILLING, MAILER):
            works.at["london", name].switch("state.broken", on=False)

        refused = inside("failback", "--to", "london", "--yes")
        works.at["london", BILLING].set(running=False)
        began = len(works.changes)
        back = inside("failback", "--to", "london", "--yes")

        assert (refused.code, ids(refused.document)[0]) == (10, "DR-WORK-001"), refused.told
        assert (back.code, works.running, lost.serving) == (0, LONDON, ["london"]), back.told
        assert works.changes[began:] == [
            "stop mailer at london",
            "stop billing at paris",
            "stop mailer at paris",
            "start billing at london",
            "start mailer at london",
        ]


class TestPart:
    @pytest.fixture(autouse=True)
    def part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the orders are asked for."""
        monkeypatch.setattr(asking, "Ask", partial(Ask, units=("orders",)))

    def test_only_what_works_on_the_part_moves(self, sites: Sites, works: Works, inside: Command) -> None:
        moved = inside("swapover", "--to", "paris", "--yes")
        there = works.running
        back = inside("swapover", "--to", "london", "--yes")

        assert (moved.code, back.code) == (0, 0), (moved.told, back.told)
        assert (there, works.running) == ([("london", BILLING), ("paris", MAILER)], LONDON)

    def test_what_belongs_to_all_is_not_asked(self, works: Works, inside: Command) -> None:
        works.at["london", BILLING].switch("state.broken")

        assert inside("swapover", "--to", "paris", "--yes").code == 0


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a command and ends its process right after the so manyeth line of intents."""
    intents = Journal.intents

    def run(inside: Command, number: int, *words: str) -> int:
        count = [0]

        def killing(self: Journal, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
            told = intents(self, step, calls)
            count[0] += 1
            if count[0] == number:
                raise Killed
            return told

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "intents", killing)
            with suppress(Killed):
                inside(*words)
        return count[0]

    return run


@pytest.mark.parametrize("number", range(1, 8))
def test_a_killed_run_is_gone_on_with(
    sites: Sites, works: Works, inside: Command, tmp_path: Path, killed: Any, number: int
) -> None:
    calls = killed(inside, number, "swapover", "--to", "paris", "--yes")

    resumed = inside("resume", "--yes")

    assert (calls, resumed.code) == (number, 0), resumed.told
    assert (works.running, sites.serving) == (PARIS, ["paris"])
    assert len(works.changes) == 4, "each was called once"
    assert inside("runs", "verify").code == 0
    entries = [entry for path in tmp_path.rglob("journal.jsonl") for entry in read(path)]
    intents = [entry.call for entry in entries if entry.kind == "intent" and entry.call]
    assert {"billing", "mailer"} <= {str(call["thing"]) for call in intents if call["goal"] in ("start", "stop")}


@pytest.mark.parametrize("number", range(1, 5))
def test_a_killed_run_is_aborted(sites: Sites, works: Works, inside: Command, killed: Any, number: int) -> None:
    before = sites.settable(sites.london)
    killed(inside, number, "swapover", "--to", "paris", "--yes")

    aborted = inside("abort", "--yes")

    assert aborted.code == 0, aborted.told
    assert (works.running, sites.serving, sites.settable(sites.london)) == (LONDON, ["london"], before)
