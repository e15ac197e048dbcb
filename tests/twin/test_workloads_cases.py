"""Workloads around a mirrored pair, case by case: what is shown of them, what fails, in which order they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dr_ctl.engine.journal import Journal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import ACCEPTED, done, put, serving
from tests.twin.subject import until
from tests.twin.test_workloads import Played, at

BILLING, MAILER = "billing", "mailer"
TO_PARIS = ("swapover", "--to", "paris", "--yes")
FAILOVER = ("failover", "--to", "paris", *ACCEPTED, "--yes")


@pytest.fixture
def works(tmp_path: Path, twin: PlayedTwin) -> Played:
    """At both sites a billing, which is a singleton, and a mailer, which is none; those of London run."""
    return Played(tmp_path / "beside", twin, singletons=(BILLING,))


def ids(ended: Ended) -> list[str]:
    return [each["id"] for each in ended.document["findings"] if each["id"].startswith("DR-WORK")]


def test_they_are_shown_by_status_plan_and_validate(works: Played, dr_ctl: Command) -> None:
    status, plan = dr_ctl("status"), dr_ctl("swapover", "--to", "paris", "--dry-run")
    validate = dr_ctl("validate", "--verbose")

    told = {(each["site"], each["name"]): each["state"] for each in status.document["data"]["workloads"]}
    assert told == {**dict.fromkeys(at("london"), "running"), **dict.fromkeys(at("paris"), "stopped")}
    steps = {step["verb"]: step for step in plan.document["data"]["plan"]["steps"]}
    calls = {
        verb: [(each["goal"], each["thing"], each["site"]) for each in step["calls"]] for verb, step in steps.items()
    }
    assert calls["quiesce"][:2] == [("stop", BILLING, "london"), ("stop", MAILER, "london")]
    assert {goal for goal, _, _ in calls["quiesce"][2:]} == {"pause"}
    assert calls["activate"][-2:] == [("start", BILLING, "paris"), ("start", MAILER, "paris")]
    assert [each["goal"] for each in steps["quiesce"]["inverse"]][-2:] == ["start", "start"]
    assert steps["quiesce"]["calls"][0]["run"] == [str(works.work("london", BILLING).folder / "stop")]
    checks = {(each["name"], each["where"]): each["verdict"] for each in validate.document["data"]["checks"]}
    assert checks[f"it can be told whether {MAILER} runs", "paris"] == "holds"
    assert checks["a singleton runs at one site only", BILLING] == "holds"
    assert (works.called, ids(status), ids(validate)) == ([], [], [])


def test_they_move_there_in_order_and_once(works: Played, dr_ctl: Command) -> None:
    there, again = dr_ctl(*TO_PARIS), dr_ctl(*TO_PARIS)

    assert (there.code, again.code, works.running) == (0, 0, at("paris")), there.document
    assert works.called == [
        *(f"stop {name} at london" for name in (BILLING, MAILER)),
        *(f"start {name} at paris" for name in (BILLING, MAILER)),
    ]
    report = Path(dr_ctl("runs", "report").document["data"]["report"]).read_text(encoding="utf-8")
    assert "billing, mailer stopped" in report
    assert "billing, mailer running" in report


def test_an_undo_starts_what_ran_and_nothing_else(works: Played, dr_ctl: Command) -> None:
    works.work("london", BILLING).set(running=False)
    works.work("london", MAILER).switch("stop.fails")

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, works.running) == (20, [("london", MAILER)]), ended.document
    assert ids(ended) == ["DR-WORK-006", "DR-WORK-003"]
    assert ended.document["data"]["outage_s"] is None, "nobody was kept out"


def test_one_that_cannot_be_started_again_is_said_by_the_end(
    works: Played, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, undo_s=0.3)
    works.work("london", MAILER).switch("stop.fails")
    works.work("london", BILLING).switch("start.fails")

    ended = dr_ctl(*TO_PARIS)

    assert ended.code == 23, ended.document
    assert "billing at london" in ended.document["summary"]


@pytest.mark.parametrize("words", [("swapover", "--to", "paris"), ("quiesce", "london"), ("failback", "--to", "paris")])
def test_a_singleton_at_two_sites_is_named_before_anything_is_moved(
    twin: PlayedTwin, works: Played, dr_ctl: Command, words: tuple[str, ...]
) -> None:
    works.work("paris", BILLING).set(running=True)

    ended, status = dr_ctl(*words, "--yes"), dr_ctl("status")

    assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-WORK-001"), ended.document
    assert "billing is a singleton, and it runs at london and paris" in ended.document["summary"]
    assert (works.called, serving(twin)) == ([], ("london",))
    assert "DR-WORK-001" in ids(status)


def test_what_is_not_a_singleton_may_run_at_both(works: Played, dr_ctl: Command) -> None:
    works.work("paris", MAILER).set(running=True)

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, ids(ended), works.running) == (0, ["DR-WORK-005"], at("paris")), ended.document


@pytest.mark.parametrize("site", ["london", "paris"])
def test_a_site_is_closed_whatever_runs_there(works: Played, dr_ctl: Command, site: str) -> None:
    works.work(site, MAILER).switch("state.broken")

    status, fenced = dr_ctl("status"), dr_ctl("fence", "london", "--yes")

    states = {(each["site"], each["name"]): each["state"] for each in status.document["data"]["workloads"]}
    assert (states[site, MAILER], fenced.code) == ("not read", 0), fenced.document


def test_an_unfence_that_cannot_start_one_undoes_nothing(twin: PlayedTwin, works: Played, dr_ctl: Command) -> None:
    works.work("london", MAILER).set(running=False)
    works.work("london", MAILER).switch("start.fails")

    ended = dr_ctl("unfence", "london", "--yes")

    assert (ended.code, serving(twin)) == (21, ("london",)), ended.document


def test_one_that_was_started_again_keeps_the_gate_shut(twin: PlayedTwin, works: Played, dr_ctl: Command) -> None:
    """Something else starts it while the source is drained."""
    settings = twin.settings_path
    told = settings.read_text(encoding="utf-8").rstrip().removesuffix("}")
    hooks = '"runbooks": "./runbooks", "hooks": {"wake": {"run": ["./wake"]}}'
    settings.write_text(f"{told}, {hooks}}}\n", encoding="utf-8")
    book = (Path(__file__).parents[2] / "runbooks" / "swapover.yaml").read_text(encoding="utf-8")
    folder = settings.parent / "runbooks"
    folder.mkdir()
    (folder / "swapover.yaml").write_text(book.replace("  - verify:", "  - hook: wake\n  - verify:"), encoding="utf-8")
    wake = settings.parent / "wake"
    state = works.work("london", MAILER).folder / "state.now"
    wake.write_text(f'#!/bin/sh\necho running > "{state}"\n', encoding="utf-8")
    wake.chmod(0o700)

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, ids(ended)) == (20, ["DR-WORK-008"]), ended.document
    assert (works.running, serving(twin)) == (at("london"), ("london",))


def test_a_fence_beside_a_site_that_serves_stops_what_runs_there(
    twin: PlayedTwin, works: Played, dr_ctl: Command
) -> None:
    done(dr_ctl(*TO_PARIS))
    works.work("london", MAILER).set(running=True)
    twin.open_clients("london")

    ended = dr_ctl("fence", "london", "--yes")

    assert (ended.code, works.running, serving(twin)) == (0, at("paris"), ("paris",)), ended.document


def test_an_activation_by_itself_stops_what_is_left_at_the_other(
    twin: PlayedTwin, works: Played, dr_ctl: Command
) -> None:
    """Both sites are closed, as after a power cut, and what works on them came up by itself."""
    twin.close_clients("london")

    ended = dr_ctl("activate", "paris", "--yes")

    assert (ended.code, works.running, serving(twin)) == (0, at("paris"), ("paris",)), ended.document


def test_an_undo_starts_nothing_beside_a_site_that_somebody_opened(
    twin: PlayedTwin, works: Played, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    intents = Journal.intents

    def opening(self: Journal, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        if step.verb == "fence":
            twin.cut("london", mode="hang")
            put(twin, "london", "orders.in", 1)
            twin.open_clients("paris")
        return intents(self, step, calls)

    monkeypatch.setattr(Journal, "intents", opening)

    ended = dr_ctl(*TO_PARIS, "--timeout", "300ms")

    assert ended.code not in (0, 20, 24), ended.document
    assert (works.running, serving(twin)) == ([], ("paris",))
    assert "billing; mailer not started at london" in ended.document["summary"]


def test_by_single_steps(twin: PlayedTwin, works: Played, dr_ctl: Command) -> None:
    done(dr_ctl("quiesce", "london", "--yes"))
    assert works.running == []
    done(dr_ctl("unfence", "london", "--yes"))
    assert works.running == at("london")

    for words in (("quiesce", "london"), ("fence", "london"), ("drain", "--to", "paris"), ("activate", "paris")):
        done(dr_ctl(*words, "--yes"))

    assert (works.running, serving(twin)) == (at("paris"), ("paris",))


class TestLost:
    @pytest.fixture
    def lost(self, twin: PlayedTwin, works: Played) -> PlayedTwin:
        twin.kill("london")
        return twin

    def test_what_still_answers_there_is_stopped_first(self, lost: PlayedTwin, works: Played, dr_ctl: Command) -> None:
        works.work("london", MAILER).switch("state.broken")

        ended = dr_ctl(*FAILOVER)

        assert ended.code == 0, ended.document
        assert works.called[0] == "stop billing at london"
        assert (works.running, serving(lost)) == ([("london", MAILER), *at("paris")], ("paris",))

    def test_what_does_not_stop_there_keeps_nobody_from_being_served(
        self, lost: PlayedTwin, works: Played, dr_ctl: Command
    ) -> None:
        for name in (BILLING, MAILER):
            works.work("london", name).switch("stop.fails")

        ended = dr_ctl(*FAILOVER)

        assert (ended.code, ended.document["summary"].partition(",")[0]) == (21, "paris serves"), ended.document
        assert sorted(ids(ended)) == ["DR-WORK-003", "DR-WORK-003", "DR-WORK-004"]
        assert works.running == [*at("london"), ("paris", MAILER)], "the singleton is not started beside the other"

    def test_a_singleton_that_may_run_at_a_closed_site_is_not_started(
        self, twin: PlayedTwin, works: Played, dr_ctl: Command
    ) -> None:
        twin.close_clients("london")
        works.work("london", BILLING).switch("state.broken")

        ended = dr_ctl(*FAILOVER)

        assert (ended.code, serving(twin)) == (21, ("paris",)), ended.document
        assert sorted(ids(ended)) == ["DR-WORK-004", "DR-WORK-007"]
        assert ("paris", BILLING) not in works.running
        assert ("paris", MAILER) in works.running

    def test_a_failback_stops_what_runs_at_the_site_that_returns(
        self, lost: PlayedTwin, works: Played, dr_ctl: Command
    ) -> None:
        for name in (BILLING, MAILER):
            works.work("london", name).switch("state.broken")
        done(dr_ctl(*FAILOVER, "--presume-down", "london", "--reason", "its hosts are powered off"))
        lost.start("london")
        until(lambda: lost.host("paris").broker.attached)
        for name in (BILLING, MAILER):
            works.work("london", name).switch("state.broken", on=False)

        refused = dr_ctl("failback", "--to", "london", "--yes")
        works.work("london", BILLING).set(running=False)
        before = len(works.called)
        back = dr_ctl("failback", "--to", "london", "--yes")

        assert (refused.code, ids(refused)[0]) == (10, "DR-WORK-001"), refused.document
        assert (back.code, works.running, serving(lost)) == (0, at("london"), ("london",)), back.document
        assert works.called[before:] == [
            "stop mailer at london",
            "stop billing at paris",
            "stop mailer at paris",
            "start billing at london",
            "start mailer at london",
        ]


@pytest.mark.parametrize("topology", [BRIDGES])
def test_with_a_part_of_a_site_what_belongs_to_all_is_not_asked(
    tmp_path: Path, twin: PlayedTwin, dr_ctl: Command
) -> None:
    works = Played(tmp_path / "beside", twin, mailer=("orders.in",))
    works.work("london", BILLING).switch("state.broken")

    ended = dr_ctl(*TO_PARIS, "--queues", "orders.in")

    assert (ended.code, works.work("paris", MAILER).runs) == (0, True), ended.document
