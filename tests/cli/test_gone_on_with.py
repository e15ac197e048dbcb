"""A swapover whose process died behind its fence, on a twin: gone on with, undone, or left as it is."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable

import pytest

from dr_ctl.engine.plan import Ask, Plan, PlannedStep
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.test_swapover import Terminal, person, swapover
from tests.report.scribe import NAME, Scribe
from tests.simulated import interrupt

__all__ = ["person"]  # a fixture


def begun(dr_ctl: Shell, installation: Installation, *verbs: str) -> None:
    """A run whose process died after these steps, with what it had changed until then."""
    dr_ctl("plan", "swapover", "--to", "paris", "--out", "plan.json")
    told = json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8"))
    steps = tuple(PlannedStep.from_json(step) for step in told["steps"])
    folder = dr_ctl.state / "runs" / NAME
    folder.mkdir(parents=True)
    asked = Ask.from_json(told["ask"])
    scribe = Scribe(
        folder, plan=Plan(asked, "london", steps, (), told["baseline"], (), (), ("london",), basis=told["basis"])
    )
    scribe.begin()
    for verb in verbs:
        calls = [call for call in scribe.step(verb).calls if call.when is None]
        for call in calls:
            site = installation.london if call.site == "london" else installation.paris
            site.do(call)
        scribe.start(verb).sent(verb, *calls).stop(verb)
    scribe.close()
    installation.forget()


class TestGoneOnWith:
    """A run whose process died behind its fence."""

    @pytest.fixture(autouse=True)
    def _begun(self, dr_ctl: Shell, installation: Installation) -> None:
        self.before = installation.settable
        begun(dr_ctl, installation, "quiesce", "fence")

    @pytest.mark.parametrize("words", [["--yes"], ["--dry-run"], []])
    def test_no_other_run_begins_beside_it(self, dr_ctl: Shell, installation: Installation, words: list[str]) -> None:
        ended = swapover(dr_ctl, *words)

        assert (ended.code, ended.document["run"], ended.ids) == (10, NAME, ["DR-RUN-003"])
        assert installation.changes == []

    def test_status_says_that_it_is_open_and_what_to_type(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("status", "--json")

        assert (ended.code, ended.document["data"]["open_run"]) == (0, NAME)
        told = next(each for each in ended.document["findings"] if each["id"] == "DR-RUN-003")
        assert "dr-ctl resume" in told["remedy"]
        assert "dr-ctl abort" in told["remedy"]
        # A step by itself is refused while a run is open.
        nobody_served = next(each for each in ended.document["findings"] if each["id"] == "DR-ROLE-015")
        assert "dr-ctl resume" in nobody_served["remedy"]
        assert "dr-ctl activate" not in nobody_served["remedy"]

    def test_status_says_of_one_that_lives_that_it_is_under_way(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        with (dr_ctl.state / "runs" / NAME / "journal.jsonl").open("ab") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)

            ended = dr_ctl("status", "--json")

        told = {each["id"]: each for each in ended.document["findings"]}
        assert (ended.code, ended.document["data"]["open_run"]) == (0, NAME)
        assert told["DR-RUN-003"]["severity"] == "info"
        assert f"{NAME} is under way" in told["DR-RUN-003"]["text"]
        assert all("dr-ctl resume" not in each["remedy"] for each in told.values())

    def test_resume_finishes_the_move(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("resume", "--yes", "--json")

        assert (ended.code, ended.document["run"]) == (0, NAME), ended.document
        assert installation.changes == ["resume()", "resume()", "start()"]
        assert [told["doors"]["clients"] for told in installation.settable] == [False, True]
        assert [told["paused"] for told in installation.settable] == [set(), set()]
        assert dr_ctl("resume", "--yes", "--json").ids == ["DR-RUN-004"]

    def test_where_the_target_serves_already_resume_only_finishes(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        installation.paris.let_in()

        shown, ended = dr_ctl("resume", "--dry-run"), dr_ctl("resume", "--yes", "--json")

        assert "is undone" not in shown.out
        assert (ended.code, installation.changes) == (0, ["resume()", "resume()"]), ended.document
        assert [told["paused"] for told in installation.settable] == [set(), set()]

    def test_abort_puts_everything_back(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("abort", "--yes", "--json")

        assert (ended.code, ended.document["run"]) == (0, NAME), ended.document
        assert "london serves again" in ended.document["summary"]
        assert installation.settable == self.before
        [run] = dr_ctl("runs", "list", "--json").document["data"]["runs"]
        assert (run["outcome"], run["summary"]) == ("aborted", ended.document["summary"])

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_does_not_stop_an_undo_half_way(
        self, dr_ctl: Shell, installation: Installation, signum: signal.Signals
    ) -> None:
        installation.london.before_change = lambda operation: interrupt(signum) if operation == "start()" else None

        ended = dr_ctl("abort", "--yes", "--json")

        assert (ended.code, ended.document["data"]["undone"]) == (0, True), ended.document
        assert installation.settable == self.before

    @pytest.mark.parametrize("verb", ["resume", "abort"])
    def test_a_run_that_died_in_its_first_line_changed_nothing(
        self, dr_ctl: Shell, installation: Installation, verb: str
    ) -> None:
        journal = dr_ctl.state / "runs" / NAME / "journal.jsonl"
        os.truncate(journal, 20)

        ended = dr_ctl(verb, "--yes", "--json")

        assert (ended.code, ended.ids, installation.changes) == (10, ["DR-RUN-004"], [])
        assert dr_ctl("status", "--json").document["data"]["open_run"] is None

    @pytest.mark.parametrize("verb", ["resume", "abort"])
    def test_nothing_is_done_unasked(self, dr_ctl: Shell, installation: Installation, verb: str) -> None:
        ended = dr_ctl(verb, "--json")

        assert (ended.code, ended.document["run"], installation.changes) == (14, NAME, [])
        assert f"--yes was not given; nothing was changed, and {NAME} stays open" in ended.document["summary"]
        assert dr_ctl("status", "--json").document["data"]["open_run"] == NAME

    @pytest.mark.parametrize("verb", ["resume", "abort"])
    @pytest.mark.parametrize("typed", ["no\n", ""])
    def test_a_no_and_a_hang_up_change_nothing(
        self,
        dr_ctl: Shell,
        installation: Installation,
        person: Callable[[str], Terminal],
        verb: str,
        typed: str,
    ) -> None:
        person(typed)

        ended = dr_ctl(verb, "--json")

        assert (ended.code, ended.document["outcome"], installation.changes) == (14, "declined", [])

    @pytest.mark.parametrize("verb", ["resume", "abort"])
    def test_a_question_can_be_interrupted(
        self, dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal], verb: str
    ) -> None:
        person("paris\n").at_question = lambda: interrupt(times=2)

        ended = dr_ctl(verb, "--json")

        assert (ended.code, ended.document["outcome"], installation.changes) == (130, "interrupted", [])

    @pytest.mark.parametrize("verb", ["resume", "abort"])
    def test_a_dry_run_shows_what_would_be_done(self, dr_ctl: Shell, installation: Installation, verb: str) -> None:
        ended = dr_ctl(verb, "--dry-run")

        assert (ended.code, installation.changes) == (0, [])
        assert ("open acceptor clients at paris" if verb == "resume" else "undo fence: open acceptor") in ended.out

    def test_abort_is_refused_once_the_target_may_have_been_opened(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        installation.paris.let_in()

        ended = dr_ctl("abort", "--yes", "--json")

        assert (ended.code, ended.ids, installation.changes) == (10, ["DR-RUN-005"], [])
