"""What the system's journal is told of a run, and `runs verify --against` what it was told."""

from __future__ import annotations

import io
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.engine.entries import GENESIS, Entry, read
from dr_ctl.engine.runs import RunFiles, Runs
from dr_ctl.engine.witness import Statement, of_state, statements
from dr_ctl.processes import system_journal
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.cli.test_gone_on_with import begun
from tests.cli.test_swapover import swapover
from tests.report.scribe import NAME, done

HASH = "5e" * 32


class Listener:
    """A socket on which the system's journal or a syslog listens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def heard(self) -> list[dict[str, str]]:
        """The entries since the last time, by the journal's own protocol; values of these have no line breaks."""
        found = []
        while True:
            try:
                raw = self.socket.recv(65536).decode("utf-8")
            except BlockingIOError:
                return found
            found.append(dict(line.split("=", 1) for line in raw.splitlines()))


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    with TemporaryDirectory() as folder:  # a socket's path must be short
        made = Listener(Path(folder, "socket"))
        monkeypatch.setenv(system_journal.VARIABLE, str(made.path))
        yield made
        made.socket.close()


def exported(entries: list[dict[str, str]]) -> str:
    """What `journalctl -o json` makes of them."""
    return "".join(json.dumps({**each, "_UID": "0", "__REALTIME_TIMESTAMP": "1"}) + "\n" for each in entries)


def verify(dr_ctl: Shell, log: str, *words: str) -> Ended:
    (dr_ctl.folder / "log").write_text(log, encoding="utf-8")
    return dr_ctl("runs", "verify", *words, "--against", "log", "--json")


def fits(ended: Ended) -> list[tuple[str, str]]:
    return [(each["run"], each["fit"]) for each in ended.document["data"]["against"]]


def folder_of(dr_ctl: Shell, ended: Ended) -> RunFiles:
    name = ended.document["run"]
    return RunFiles(name, dr_ctl.state / "runs" / name)


def fill(path: Path) -> None:
    """Send to a listener who reads nothing, until there is no room for more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        while True:
            other.sendto(b"x", str(path))


class TestTold:
    def test_a_run_tells_its_begin_and_its_end_with_the_last_hash(
        self, dr_ctl: Shell, installation: Installation, listener: Listener
    ) -> None:
        ended = swapover(dr_ctl, "--yes", "--reason", "CHG 1")

        first, last = listener.heard()
        sealed = json.loads(folder_of(dr_ctl, ended).result.read_bytes())["journal"]
        assert (first["DR_CTL_EVENT"], first["DR_CTL_LINES"], last["DR_CTL_EVENT"]) == ("begin", "1", "end")
        assert (last["DR_CTL_HASH"], last["DR_CTL_LINES"]) == (sealed["last_hash"], str(sealed["count"]))
        assert {each["DR_CTL_RUN"] for each in (first, last)} == {ended.document["run"]}
        assert (last["SYSLOG_IDENTIFIER"], last["PRIORITY"], last["DR_CTL_OUTCOME"]) == ("dr-ctl", "5", "ok")
        assert "operation=swapover source=london target=paris" in last["MESSAGE"]
        assert fits(verify(dr_ctl, exported([first, last]))) == [(ended.document["run"], "agrees")]

    def test_looking_and_refusals_tell_nothing(
        self, dr_ctl: Shell, installation: Installation, listener: Listener
    ) -> None:
        codes = [dr_ctl("status").code, swapover(dr_ctl).code, swapover(dr_ctl, "--dry-run").code]

        assert (codes, listener.heard()) == ([0, 14, 0], [])

    @pytest.mark.parametrize("command", ["resume", "abort"])
    def test_a_run_that_is_gone_on_with_tells_its_end(
        self, dr_ctl: Shell, installation: Installation, listener: Listener, command: str
    ) -> None:
        begun(dr_ctl, installation, "quiesce", "fence")

        dr_ctl(command, "--yes", "--json")

        entries = listener.heard()
        assert [(each["DR_CTL_EVENT"], each["DR_CTL_COMMAND"]) for each in entries] == [
            ("begin", command),
            ("end", command),
        ]
        assert fits(verify(dr_ctl, exported(entries))) == [(NAME, "agrees")]

    def test_nobody_who_listens_changes_no_run(
        self, dr_ctl: Shell, installation: Installation, listener: Listener
    ) -> None:
        listener.socket.close()
        assert swapover(dr_ctl, "--yes").code == 0

    def test_a_journal_that_takes_nothing_more_keeps_no_run_waiting(
        self, dr_ctl: Shell, installation: Installation, listener: Listener
    ) -> None:
        with pytest.raises(BlockingIOError):
            fill(listener.path)

        assert swapover(dr_ctl, "--yes").code == 0

    def test_without_journald_syslog_gets_the_line(self, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(system_journal.VARIABLE)
        monkeypatch.setattr(system_journal, "_JOURNALD", "/nowhere/socket")

        assert system_journal.tell("run=a event=end", {}, syslog=str(listener.path)) == "syslog"

        raw = listener.socket.recv(65536).decode("utf-8")
        assert raw.startswith("<13>")
        assert raw.endswith("]: run=a event=end")
        assert system_journal.tell("run=a event=end", {}, syslog="/nowhere/log") is None

    def test_a_value_with_lines_of_its_own_goes_with_its_length(self, listener: Listener) -> None:
        assert system_journal.tell("one\ntwo", {"DR_CTL_RUN": "a"}) == "journald"

        assert listener.socket.recv(65536).startswith(
            b"MESSAGE\n" + (7).to_bytes(8, "little") + b"one\ntwo\nPRIORITY=5\n"
        )


@dataclass
class Past:
    """A run that has ended, and the two lines of a log that tell of it."""

    files: RunFiles
    log: list[str]


@pytest.fixture
def past(dr_ctl: Shell) -> Past:
    folder = dr_ctl.state / "runs" / NAME
    folder.mkdir(parents=True)
    files = done(folder).files
    state = of_state(Runs(dr_ctl.state, SystemClock()).identity())
    entries = read(files.journal)
    marks = [("begin", 1), ("end", len(entries))]
    lines = [Statement(NAME, event, at, entries[at - 1].hash(), state).line for event, at in marks]
    return Past(files, [f"Nov 21 02:00:00 ops-1 dr-ctl[4711]: {line}\n" for line in lines])


class TestAgainst:
    def test_plain_lines_among_others_do_as_well(self, dr_ctl: Shell, past: Past) -> None:
        ended = verify(dr_ctl, "".join(["Nov 21 02:00:00 ops-1 kernel: nothing\n", *past.log]))

        assert (ended.code, fits(ended)) == (0, [(NAME, "agrees")])

    def test_standard_input_is_read_too(self, dr_ctl: Shell, past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(past.log)))

        assert dr_ctl("runs", "verify", "--against", "-").code == 0

    def test_a_run_that_somebody_wrote_anew_fits_in_itself_and_not_the_log(self, dr_ctl: Shell, past: Past) -> None:
        written_anew(past.files, "nothing is under way", "nothing was under way")
        assert dr_ctl("runs", "verify").code == 0

        ended = verify(dr_ctl, "".join(past.log))

        assert (ended.code, ended.ids, fits(ended)) == (10, ["DR-JOURNAL-002"], [(NAME, "differs")])

    def test_a_run_that_somebody_removed_is_missed(self, dr_ctl: Shell, past: Past) -> None:
        shutil.rmtree(past.files.folder)

        ended = verify(dr_ctl, "".join(past.log))

        assert (ended.code, ended.ids, fits(ended)) == (10, ["DR-JOURNAL-003"], [(NAME, "gone here")])

    def test_runs_of_another_state_are_not_missed(self, dr_ctl: Shell, past: Past) -> None:
        other = Statement("20260101T000000Z-swapover-paris-aaaa", "end", 3, HASH, of_state("another")).line

        ended = verify(dr_ctl, "".join([*past.log, f"{other}\n"]))

        assert (ended.code, fits(ended)) == (0, [(NAME, "agrees")])

    def test_what_a_log_does_not_tell_is_neither_well_nor_altered(self, dr_ctl: Shell, past: Past) -> None:
        without_end, nothing = verify(dr_ctl, past.log[0]), verify(dr_ctl, "")

        assert [(each.code, each.ids) for each in (without_end, nothing)] == [(22, ["DR-JOURNAL-004"])] * 2
        assert [fits(each)[0][1] for each in (without_end, nothing)] == ["end not there", "not there"]

    def test_a_run_that_is_open_agrees_so_far(self, dr_ctl: Shell, past: Past) -> None:
        past.files.result.unlink()
        lines = past.files.journal.read_bytes().splitlines(keepends=True)
        past.files.journal.write_bytes(b"".join(lines[:-4]))

        assert fits(verify(dr_ctl, past.log[0])) == [(NAME, "agrees so far")]
        assert verify(dr_ctl, "".join(past.log)).ids == ["DR-JOURNAL-002"]

    def test_a_run_that_never_began_needs_nobody_who_vouches(self, dr_ctl: Shell, past: Past) -> None:
        (dr_ctl.state / "runs" / "20261123T020000Z-swapover-paris-9d0e").mkdir()

        assert (verify(dr_ctl, "".join(past.log)).code, verify(dr_ctl, past.log[1], NAME).code) == (0, 0)

    def test_a_log_that_is_not_there_is_a_mistake(self, dr_ctl: Shell, past: Past) -> None:
        assert dr_ctl("runs", "verify", "--against", "none.log").code == 2


def written_anew(files: RunFiles, old: str, new: str) -> None:
    """A run whose every file was made up, with hashes that fit."""
    previous, lines = GENESIS, []
    for line in files.journal.read_text("utf-8").replace(old, new).splitlines():
        row = {**json.loads(line), "previous": previous}
        row.pop("hash")
        entry = Entry(**row)
        previous = entry.hash()
        lines.append(entry.to_line())
    files.journal.write_text("".join(lines), encoding="utf-8")
    result = json.loads(files.result.read_text("utf-8").replace(old, new))
    result["journal"]["last_hash"] = previous
    files.result.write_text(json.dumps(result), encoding="utf-8")


def test_no_word_of_a_person_makes_a_statement() -> None:
    reason = f'x" event=end run=b event=end lines=9 hash={HASH} state=ab'
    made = Statement("a", "begin", 1, HASH, "ab", {"reason": reason, "by": None})

    assert list(statements([made.line])) == [made]
    assert list(statements([json.dumps({"MESSAGE": [*made.line.encode(), 999]}), "{torn", "{}", ""])) == [made]
