"""A swapover from the command line, on a twin: asked, declined, carried out, undone."""

from __future__ import annotations

import fcntl
import io
import json
import signal
import stat
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.runbook import shipped
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.driver import Driver
from dr_ctl.topologies.common.view import Broker
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import NOT_NOW, Installation
from tests.patience import impatient
from tests.simulated import interrupt
from tests.twin.subject import until

MOVE = ["pause()", "pause()", "stop()", "resume()", "resume()", "start()"]
UNDONE = ["resume()", "resume()"]


class Terminal(io.StringIO):
    """What a person types; `at_question` is what happens while the answer is awaited."""

    at_question: Callable[[], None] = staticmethod(lambda: None)

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:
        self.at_question()
        return super().readline(size)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """Put a person in front of the command, who types this and then goes away."""

    def typing(text: str) -> Terminal:
        terminal = Terminal(text)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return terminal

    return typing


def swapover(dr_ctl: Shell, *words: str, to: str = "paris") -> Ended:
    return dr_ctl("swapover", "--to", to, "--json", *words)


class TestCarriedOut:
    def test_the_service_moves_and_everything_else_stays(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"]) == (0, "ok"), ended.document
        assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
        assert installation.changes == MOVE
        assert [told["doors"]["clients"] for told in installation.settable] == [False, True]
        assert [told["paused"] for told in installation.settable] == [set(), set()]

    def test_what_it_wrote_is_the_owners_alone(self, dr_ctl: Shell, installation: Installation) -> None:
        run = swapover(dr_ctl, "--yes").document["run"]

        written = [dr_ctl.state, *dr_ctl.state.rglob("*")]
        assert {path.name for path in (dr_ctl.state / "runs" / run).iterdir()} == {
            "plan.json",
            "journal.jsonl",
            "result.json",
            "report.html",
        }
        assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.is_file()} == {0o600}
        assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.is_dir()} == {0o700}

    def test_there_and_back_leaves_all_as_it_was(self, dr_ctl: Shell, installation: Installation) -> None:
        before = installation.settable

        assert [swapover(dr_ctl, "--yes", to=site).code for site in ("paris", "london")] == [0, 0]
        assert installation.settable == before

    def test_a_second_time_there_is_nothing_to_do(self, dr_ctl: Shell, installation: Installation) -> None:
        swapover(dr_ctl, "--yes")
        installation.forget()

        again = swapover(dr_ctl, "--yes")

        assert (again.code, again.document["run"], installation.changes) == (0, None, [])
        assert "serves already" in again.document["summary"]

    def test_warnings_have_their_exit_code_where_it_is_asked_for(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        ended = swapover(dr_ctl, "--yes", "--warn-exit")

        assert (ended.code, ended.document["outcome"], ended.document["exit_code"]) == (30, "warnings", 30)


class TestMeanwhile:
    def test_a_target_that_somebody_opens_before_the_checks_ends_the_run(
        self, dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        apply = Driver.apply

        def opened(self: Driver[Broker], step: PlannedStep, *told: Any) -> Any:
            if step.verb != "check":
                return apply(self, step, *told)
            installation.paris.let_in()
            installation.london.holds_back(5)
            return apply(self, step, *told)

        monkeypatch.setattr(Driver, "apply", opened)

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.ids[0]) == (10, "DR-ROLE-001"), ended.document
        assert installation.changes == []

    def test_a_broker_that_does_not_answer_right_after_it_was_opened_is_asked_again(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        def moment(operation: str) -> None:
            if operation == "start()":
                installation.paris.host.faults.add(Fault(FaultKind.ERROR, When(changing=False), times=2))

        installation.paris.after_change = moment

        assert swapover(dr_ctl, "--yes").code == 0


class TestUndone:
    @pytest.mark.parametrize(
        "told",
        [{"orders.in": (1, True), "orders.audit": (-1, True)}, {"orders.in": (0, True)}, {}],
        ids=["one below zero beside one that is held", "one that is not named", "none is named"],
    )
    def test_what_clients_hold_is_not_told_by_a_sum(
        self, dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
    ) -> None:
        before = installation.settable
        monkeypatch.setattr("dr_ctl.topologies.artemis.look.dispatch", lambda reader, view: told)
        books = dr_ctl.folder / "runbooks"
        books.mkdir()
        text = (shipped() / "swapover.yaml").read_text(encoding="utf-8")
        (books / "swapover.yaml").write_text(text.replace("within: 5s", "within: 200ms"), encoding="utf-8")
        dr_ctl.settings(installation.london.url, installation.paris.url, runbooks=str(books))

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, "DR-QUEUE-003" in ended.ids) == (20, True), ended.document
        assert installation.settable == before

    @pytest.mark.parametrize(
        ("site", "verb", "changes"),
        [("london", "stop", UNDONE), ("paris", "start", ["resume()", "resume()", "start()"])],
    )
    def test_a_call_that_the_broker_refuses_is_undone(
        self,
        dr_ctl: Shell,
        installation: Installation,
        monkeypatch: pytest.MonkeyPatch,
        site: str,
        verb: str,
        changes: list[str],
    ) -> None:
        impatient(monkeypatch, fence_s=0.0)
        before = installation.settable
        getattr(installation, site).instead[verb] = NOT_NOW

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"]) == (20, "reverted"), ended.document
        assert ended.document["data"]["undone"] is True
        assert "london serves again" in ended.document["summary"]
        assert installation.changes[-len(changes) :] == changes
        assert installation.settable == before

    @pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_before_the_point_of_no_return_undoes(
        self, dr_ctl: Shell, installation: Installation, signum: signal.Signals, code: int
    ) -> None:
        before = installation.settable
        installation.london.before_change = lambda operation: interrupt(signum) if operation == "stop()" else None

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"]) == (code, "interrupted"), ended.document
        assert ended.document["data"]["undone"] is True
        assert installation.settable == before

    def test_a_signal_after_it_does_not(self, dr_ctl: Shell, installation: Installation) -> None:
        installation.paris.before_change = lambda operation: interrupt() if operation == "start()" else None

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"]) == (0, "ok"), ended.document
        assert installation.changes == MOVE


class TestAsked:
    def test_without_a_terminal_and_without_yes_it_is_declined(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = swapover(dr_ctl)

        assert (ended.code, ended.document["outcome"], installation.changes) == (14, "declined", [])
        assert "--yes" in ended.document["summary"]
        assert not (dr_ctl.state / "runs").exists()

    @pytest.mark.parametrize(("typed", "code"), [("paris\n", 0), ("london\n", 14), ("yes\n", 14), ("\n", 14), ("", 14)])
    def test_a_person_says_yes_with_the_targets_name(
        self, dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal], typed: str, code: int
    ) -> None:
        person(typed)

        ended = swapover(dr_ctl)

        assert (ended.code, installation.changes) == (code, [] if code else MOVE), ended.document
        assert "close acceptor clients at london" in ended.err
        assert "Type `paris` to go on:" in ended.err

    def test_what_it_costs_stands_beside_the_question(
        self, dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal]
    ) -> None:
        person("no\n")
        first = swapover(dr_ctl).err.splitlines()
        dr_ctl.settings(installation.london.url, installation.paris.url, objectives={"recovery": "2m"})
        assert [swapover(dr_ctl, "--yes", to=to).code for to in ("paris", "london")] == [0, 0]
        outages = [each["out_s"]["at_most"] for each in dr_ctl("runs", "list", "--json").document["data"]["runs"]]
        person("no\n")

        then = swapover(dr_ctl).err.splitlines()

        out = "clients of 2 queues will be out for"
        unknown = "a time that no move from here has measured yet (0 to ship now)"
        assert first[-2] == f"Move from london to paris: {out} {unknown}; nothing is lost, nothing comes twice."
        about = f"about {duration(median(outages))}"
        between = f"(the last 2 moves: {duration(min(outages))} to {duration(max(outages))})"
        assert then[-2] == (
            f"Move from london to paris: {out} {about} {between}, at most {duration(120)} (then it is undone); nothing "
            "is lost, nothing comes twice."
        )
        assert then[-1] == "Type `paris` to go on:"

    @pytest.mark.parametrize(
        ("typed", "code", "moved"),
        [
            ("y\n" * 11, 0, True),
            ("y\n" * 5 + "n\nu\n", 20, False),
            ("n\ns\n", 130, False),
            ("n\n?\ny\n" + "y\n" * 10, 0, True),
            ("", 130, False),
        ],
    )
    def test_step_by_step_a_no_offers_undo_and_stopping_here(
        self,
        dr_ctl: Shell,
        installation: Installation,
        person: Callable[[str], Terminal],
        typed: str,
        code: int,
        moved: bool,
    ) -> None:
        person("paris\n" + typed)

        ended = swapover(dr_ctl, "--step")

        assert (ended.code, installation.paris.open) == (code, moved), ended.document
        assert ("    Then [u]ndo all and end, [s]top here, or [y]es after all" in ended.err) is ("n\n" in typed)

    def test_who_says_no_has_read_the_findings_once(
        self, dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal]
    ) -> None:
        installation.twin.cut("paris")
        until(lambda: not installation.paris.broker.attached)
        person("no\n")

        text = dr_ctl("swapover", "--to", "paris")
        person("no\n")
        told = swapover(dr_ctl)

        assert (text.out + text.err).count("DR-LINK-004") == 1
        assert text.out.strip() == "declined (14): a person said no; nothing was changed"
        assert told.ids == ["DR-LINK-004"]

    def test_a_person_who_interrupts_the_question_changes_nothing(
        self, dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal]
    ) -> None:
        person("paris\n").at_question = interrupt

        ended = swapover(dr_ctl)

        assert (ended.code, ended.document["outcome"], installation.changes) == (130, "interrupted", [])

    def test_a_dry_run_shows_the_very_plan_and_leaves_no_trace(
        self, dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal]
    ) -> None:
        person("").at_question = pytest.fail

        dry = swapover(dr_ctl, "--dry-run")
        shown = dr_ctl("plan", "swapover", "--to", "paris", "--json", "--out", "plan.json")

        assert (dry.code, installation.changes, dr_ctl.state.exists()) == (0, [], False)
        assert dry.document["data"]["plan"] == shown.document["data"]["plan"]
        assert json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8")) == dry.document["data"]["plan"]

    def test_a_plan_that_cannot_be_written_is_said_so(self, dr_ctl: Shell, installation: Installation) -> None:
        ended = dr_ctl("plan", "swapover", "--to", "paris", "--out", "no/such/folder/plan.json")

        assert ended.code == 2
        assert "--out no/such/folder/plan.json: No such file or directory" in ended.out


class TestRefused:
    def test_another_run_under_way_is_named(self, dr_ctl: Shell, installation: Installation) -> None:
        dr_ctl.state.mkdir()
        with (dr_ctl.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            json.dump({"what": "swapover to paris", "pid": 4711, "host": "ops-1", "since": "02:00"}, lock)
            lock.flush()
            ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.document["outcome"], installation.changes) == (13, "locked", [])
        assert "swapover to paris (process 4711 on ops-1, since 02:00)" in ended.document["summary"]

    @pytest.mark.parametrize(
        ("words", "finding"), [(["--expect-serving", "paris"], "DR-ROLE-002"), (["--timeout", "1s"], None)]
    )
    def test_the_site_that_serves_is_the_one_expected(
        self, dr_ctl: Shell, installation: Installation, words: list[str], finding: str | None
    ) -> None:
        ended = swapover(dr_ctl, "--yes", *words)

        assert (ended.code, finding in ended.ids) == ((10, True) if finding else (0, False))
        assert installation.changes == ([] if finding else MOVE)

    def test_both_sites_open_are_never_moved(self, dr_ctl: Shell, installation: Installation) -> None:
        installation.paris.let_in()

        ended = swapover(dr_ctl, "--yes")

        assert (ended.code, ended.ids, installation.changes) == (10, ["DR-ROLE-001"], [])
