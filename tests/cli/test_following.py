"""`runs show --follow`: a run seen from a second terminal while it goes, and how it is told that it is over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dr_ctl.core.errors import Stopped
from dr_ctl.core.system import ThisMachine, running_on
from tests.cli.conftest import Ended, Shell
from tests.report.scribe import Scribe, call, done

NAME = "20261121T020000Z-swapover-paris-7f3a"


@pytest.fixture
def folder(dr_ctl: Shell) -> Path:
    path = dr_ctl.state / "runs" / NAME
    path.mkdir(parents=True)
    return path


class Waiting(ThisMachine):
    """Time passes only while somebody waits, and then a step is taken."""

    def __init__(self, steps: Iterator[object]) -> None:
        self._steps, self._passed_s = steps, 0.0

    def monotonic(self) -> float:
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        self._passed_s += seconds
        next(self._steps)


@pytest.fixture
def meanwhile() -> Iterator[Callable[[Iterator[object]], None]]:
    """Lets a run take its next step whenever its follower waits."""
    with ExitStack() as until_the_end:
        yield lambda steps: until_the_end.enter_context(running_on(Waiting(steps)))


def shown(ended: Ended) -> list[str]:
    """The lines without their times."""
    return [line.split("Z", 1)[-1].strip() if line.startswith("2026-") else line for line in ended.out.splitlines()]


def test_a_run_that_has_ended_is_shown_to_its_end_at_once(dr_ctl: Shell, folder: Path) -> None:
    done(folder)

    followed, past = dr_ctl("runs", "show", "--follow", NAME[:10]), dr_ctl("runs", "show")

    assert followed.code == 0
    assert followed.out.splitlines()[-1] == past.out.splitlines()[-1] == f"{NAME}: ok: paris serves"
    waits = [line for line in followed.out.splitlines() if "outflow" in line or "delivering" in line]
    assert [line for line in followed.out.splitlines() if line not in waits] == past.out.splitlines()
    assert waits[0].endswith("delivering 7")


def test_lines_come_as_they_are_written_and_the_end_is_told(
    dr_ctl: Shell, folder: Path, meanwhile: Callable[[Iterator[object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def run() -> Iterator[object]:
        scribe = Scribe(folder)
        yield
        for act in (
            scribe.begin,
            lambda: scribe.start("fence"),
            lambda: scribe.sent("fence", call("close acceptor clients at london")),
            lambda: scribe.stop("fence"),
            lambda: scribe.end(0, "ok", "paris serves"),
        ):
            seen.append(capsys.readouterr().out)
            yield act()

    meanwhile(run())

    ended = dr_ctl("runs", "show", "--follow")

    assert [len(out.splitlines()) for out in seen] == [0, 0, 1, 1, 1]
    assert "06-fence: started" in seen[2]
    assert "call: close acceptor clients at london" in seen[3]
    assert "06-fence: succeeded" in seen[4]
    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"{NAME}: ok: paris serves")


def test_a_run_whose_process_died_is_told_from_one_that_ended(
    dr_ctl: Shell, folder: Path, meanwhile: Callable[[Iterator[object]], None]
) -> None:
    def run() -> Iterator[object]:
        scribe = Scribe(folder).begin().start("fence")
        yield
        yield scribe.close()

    meanwhile(run())

    ended = dr_ctl("runs", "show", "--follow", "--json")

    *lines, document = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["kind"] for line in lines] == ["run", "step"]
    assert (ended.code, document["data"]) == (0, {"outcome": "open", "entries": 2})
    assert document["summary"] == f"{NAME}: its process is gone and it has not ended"
    assert "dr-ctl resume" in document["findings"][0]["remedy"]


def test_a_line_that_is_half_written_is_waited_for(
    dr_ctl: Shell, folder: Path, meanwhile: Callable[[Iterator[object]], None]
) -> None:
    scribe = Scribe(folder).begin()
    scribe.start("fence")
    whole = scribe.files.journal.read_bytes()
    first = whole.index(b"\n") + 1

    def run() -> Iterator[object]:
        yield scribe.files.journal.write_bytes(whole[: first + 40])
        yield scribe.files.journal.write_bytes(whole)
        yield scribe.close()

    scribe.files.journal.write_bytes(whole[:first])
    meanwhile(run())

    ended = dr_ctl("runs", "show", "--follow", "--json")

    assert [json.loads(line).get("seq") for line in ended.out.splitlines()] == [1, 2, None]


def test_waits_are_told_once_a_second_to_people_and_whole_to_scripts(dr_ctl: Shell, folder: Path) -> None:
    scribe = Scribe(folder).begin().start("drain")
    for left in range(40):
        scribe.sample("drain", {"london": {"outflow": 40 - left, "attached": False}, "paris": {"outflow": 0}}).let(0.1)
    scribe.close()

    text, told = dr_ctl("runs", "show", "--follow"), dr_ctl("runs", "show", "--follow", "--json")

    waits = [line for line in shown(text) if "outflow" in line]
    assert waits[0] == "london: outflow 40, not attached; paris: outflow 0"
    assert len(waits) == 4
    assert sum(json.loads(line).get("kind") == "sample" for line in told.out.splitlines()) == 40


def test_ctrl_c_ends_the_showing_and_not_the_run(
    dr_ctl: Shell, folder: Path, meanwhile: Callable[[Iterator[object]], None]
) -> None:
    scribe = Scribe(folder).begin()

    def stop() -> Iterator[object]:
        raise Stopped(2)
        yield

    meanwhile(stop())

    ended = dr_ctl("runs", "show", "--follow")

    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"{NAME} is no longer followed; the run goes on")
    scribe.close()


def test_a_run_that_never_begins_is_not_waited_for_for_ever(
    dr_ctl: Shell, folder: Path, meanwhile: Callable[[Iterator[object]], None]
) -> None:
    meanwhile(iter(range(1000)))

    ended = dr_ctl("runs", "show", "--follow")

    assert (ended.code, ended.out) == (0, f"{NAME}: none: it never began: nothing was changed by it\n")


def test_a_damaged_line_is_not_passed_over(dr_ctl: Shell, folder: Path) -> None:
    done(folder)
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"seq":4,', b'"seq":;,'))

    ended = dr_ctl("runs", "show", "--follow")

    assert ended.code == 1
    assert "line 4 is not a journal line" in ended.out
