"""Past runs as `runs` shows them, a run that is followed, and how its report tells it; no broker is needed."""

import getpass
import hashlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import Stopped
from dr_ctl.core.system import ThisMachine, running_on
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.record import record
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.common.driver import Driver
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation, Sites
from tests.cli.moving import ACCEPTED, begun, failover, swapover
from tests.report.scribe import NAME, Scribe, aborted, call, cut_off, done, undone
from tests.report.test_html import Form
from tests.report.test_view import plain
from tests.simulated import interrupt

OPEN = "20261122T020000Z-swapover-paris-1b2c"
EMPTY = "20261123T020000Z-swapover-paris-9d0e"


def lost_line(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:4] + lines[5:]), encoding="utf-8")


def garbled(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe no line\n", *lines[3:]]))


def test_a_run_that_two_people_worked_on_names_both(dr_ctl: Shell) -> None:
    aborted(dr_ctl.run())

    [row] = dr_ctl("runs", "list", "--json").document["data"]["runs"]

    assert (row["by"], row["took_s"]) == ("ada@ops-1, bob@ops-2", 65.0)


def test_a_run_that_never_began_is_the_last_one_and_says_so(dr_ctl: Shell) -> None:
    done(dr_ctl.run())
    dr_ctl.run(EMPTY)

    ended = dr_ctl("runs", "show")

    assert (ended.code, ended.out) == (0, f"{EMPTY}: none: it never began: nothing was changed by it\n")


def test_signals_refusals_and_undone_steps_are_shown(dr_ctl: Shell) -> None:
    scribe = Scribe(dr_ctl.run()).begin().start("fence")
    scribe.sent("fence", call("close acceptor clients at london"), outcome="refused", text="no such acceptor")
    scribe.journal.signal("interrupted")
    scribe.undo("fence", 0.5).end(130, "interrupted", "stopped by a signal; undone")

    out = dr_ctl("runs", "show").out

    assert "refused: no such acceptor" in out
    assert "signal: interrupted" in out
    assert "06-fence: undone: put back" in out


@pytest.mark.parametrize(
    ("write", "words"),
    [(done, "paris serves"), (undone, "not drained after 60 s"), (cut_off, "close acceptor clients at london")],
)
def test_the_report_is_written_anew(dr_ctl: Shell, write: Callable[[Path], Scribe], words: str) -> None:
    run = dr_ctl.run()
    write(run)
    (run / "report.html").write_text("an older one", encoding="utf-8")

    ended = dr_ctl("runs", "report", "--json")

    page = Path(ended.document["data"]["report"])
    assert (ended.code, page, ended.document["run"]) == (0, run / "report.html", NAME)
    assert words in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("damage", [lost_line, garbled])
def test_a_damaged_journal_is_not_shown_as_if_it_were_whole(dr_ctl: Shell, damage: Callable[[Path], None]) -> None:
    done(dr_ctl.run())
    damage(dr_ctl.state / "runs" / NAME / "journal.jsonl")

    ended, report = dr_ctl("runs", "show", "--json"), dr_ctl("runs", "report")

    assert (ended.code, report.code) == (1, 0)
    [finding] = ended.document["findings"]
    assert "journal.jsonl: line " in finding["text"]
    assert "`dr-ctl runs verify" in finding["remedy"]
    assert "--forget" not in finding["remedy"]  # it has ended: there is nothing to give up
    assert "defect" not in ended.out
    assert "left out" in (dr_ctl.state / "runs" / NAME / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "[]", '{"outcome": "ok"}', "\udcff"])
def test_one_damaged_result_does_not_hide_the_other_runs(dr_ctl: Shell, text: str) -> None:
    done(dr_ctl.run())
    done(dr_ctl.run(OPEN))
    (dr_ctl.state / "runs" / NAME / "result.json").write_bytes(text.encode(errors="surrogateescape"))

    told = dr_ctl("runs", "list", "--json").document["data"]["runs"]

    assert [row["outcome"] for row in told] == ["unknown", "ok"]
    assert "result.json cannot be read" in told[0]["summary"]


def test_a_run_says_of_which_installation_it_was_and_how_it_was_asked_for(
    dr_ctl: Shell, installation: Installation
) -> None:
    words = ["swapover", "--to", "paris", "--yes", "--reason", "change 4711"]

    run = dr_ctl(*words, "--json").document["run"]

    kept = record(RunFiles(run, dr_ctl.state / "runs" / run))
    [author] = kept.authors
    typed = dr_ctl.journal(run)[0]["evidence"]["by"]["command"]
    assert typed == "dr-ctl swapover --to paris --yes --reason 'change 4711' --json"
    assert author.name == f"{getpass.getuser()}@{socket.gethostname()}"
    digest = hashlib.sha256((dr_ctl.folder / "dr-ctl.yaml").read_bytes()).hexdigest()
    assert kept.about == {
        "name": "orders",
        "topology": "artemis-mirror",
        "settings": {"file": "dr-ctl.yaml", "sha256": digest},
        "brokers": {site: [f"orders-1 at {url}"] for site, url in installation.urls.items()},
        "objectives": None,
    }
    assert kept.let_in is not None
    assert kept.let_in.site == "paris"
    assert (kept.reason, kept.epoch, kept.outcome) == ("change 4711", 1, "ok")


def test_the_index_leads_to_the_reports_beside_it_and_elsewhere_nowhere(dr_ctl: Shell) -> None:
    done(dr_ctl.run())
    assert dr_ctl("runs", "report", NAME).code == 0
    (dr_ctl.folder / "sent").mkdir()
    index = ("runs", "report", "--index", "--since", "2026-11-01")

    ended, sent = dr_ctl(*index, "--json"), dr_ctl(*index, "--out", "sent/year.html")

    path = dr_ctl.state / "index.html"
    assert (ended.code, ended.document["data"], sent.code) == (0, {"report": str(path)}, 0)
    assert f'href="runs/{NAME}/report.html"' in path.read_text("utf-8")
    text = (dr_ctl.folder / "sent" / "year.html").read_text("utf-8")
    assert "Swapover from london to paris" in text
    assert "href" not in text


@pytest.fixture
def folder(dr_ctl: Shell) -> Path:
    return dr_ctl.run()


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


def report(dr_ctl: Shell, ended: Ended) -> Form:
    """The page of a run, as it was written at its end."""
    form = Form()
    form.feed(Path(dr_ctl.state / "runs" / ended.document["run"] / "report.html").read_text("utf-8"))
    return form


def tone(form: Form) -> str:
    (verdict,) = [attributes["class"] for tag, attributes in form.tags if attributes.get("id") == "verdict"]
    return str(verdict).removeprefix("verdict is-")


def words(form: Form) -> str:
    return plain(" ".join(form.text.split()))


def test_a_failover_with_a_loss_is_amber_and_its_outage_is_no_longer_than_was_seen(dr_ctl: Shell, sites: Sites) -> None:
    sites.lose()

    ended = failover(dr_ctl, "--yes", *ACCEPTED)

    form = report(dr_ctl, ended)
    assert (ended.code, tone(form)) == (0, "owed"), ended.document
    assert "may be lost" in words(form)
    assert "2 thing(s) are owed" in words(form)
    assert re.search(r"Clients out: at least [\d.]+ m?s London was first seen down", words(form))


def test_a_step_that_a_signal_stopped_is_interrupted_and_not_refused(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation.london.holds_back(3)
    apply = Driver.apply

    def applied(driver: Driver, step: PlannedStep, *rest: Any, **more: Any) -> Any:
        if step.verb == "drain":
            interrupt()
        return apply(driver, step, *rest, **more)

    monkeypatch.setattr(Driver, "apply", applied)

    ended = swapover(dr_ctl, "--yes")

    form = report(dr_ctl, ended)
    steps = words(form).partition("Time line of the steps")[2].partition("What was under way")[0]
    assert (ended.code, ended.document["data"]["undone"]) == (130, True), ended.document
    assert tone(form) == "undone"
    assert "Stopped by a signal; undone" in words(form)
    assert "07 drain paris interrupted" in steps
    assert "refused" not in steps


@pytest.mark.parametrize(
    ("command", "note"), [("resume", "interrupted, and gone on with"), ("abort", "undone by another process")]
)
def test_a_run_whose_process_died_says_so_beside_its_verdict(
    dr_ctl: Shell, installation: Installation, command: str, note: str
) -> None:
    begun(dr_ctl, installation, "quiesce", "fence")

    ended = dr_ctl(command, "--yes", "--json")

    assert ended.code == 0
    assert re.search(rf"The run was {note} \(\w+\): nothing was written for ", words(report(dr_ctl, ended)))
