"""Whoever reads the output leaves after any of its lines: each command that changes a broker ends as it would have."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dr_ctl.cli.app import run
from dr_ctl.cli.streams import LastingStream
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import MIRROR
from tests.conftest import Command
from tests.patience import time_now
from tests.twin.matrix import OPERATIONS, SOME_AND_ALL, done, moments


class Leaving(io.FileIO):
    """The writing end of a pipe whose reader leaves after so many lines, None: stays to the end."""

    def __init__(self, lines: int | None) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, True)
        super().__init__(writer, "w")
        self.left, self.seen = lines, 0
        self._here = True

    def write(self, data: io.BytesIO | bytes | memoryview, /) -> int:  # type: ignore[override]
        if self._here and self.left is not None and self.seen >= self.left:
            self.leave()
        written = super().write(data)
        self.seen += bytes(data).count(b"\n")
        if self._here:
            os.read(self._reader, written)
        return written

    def leave(self) -> None:
        if self._here:
            self._here = False
            os.close(self._reader)


@contextmanager
def read_by(patch: pytest.MonkeyPatch, streams: Sequence[str], lines: int | None) -> Iterator[Leaving]:
    """Have these of the standard streams read by one who leaves."""
    pipe = Leaving(lines)
    with patch.context() as swapped, LastingStream(io.BufferedWriter(pipe), "utf-8", line_buffering=True) as text:
        for stream in streams:
            swapped.setattr(sys, stream, text)
        yield pipe
        text.flush()
        pipe.leave()


@SOME_AND_ALL
@pytest.mark.parametrize(
    ("streams", "form"), [(("stdout", "stderr"), ()), (("stderr",), ("--json",))], ids=["text", "json"]
)
@pytest.mark.parametrize(
    "operation", [pytest.param(each, marks=() if each == "swapover" else pytest.mark.deep) for each in OPERATIONS]
)
def test_a_reader_that_leaves_after_any_line_decides_no_run(
    tmp_path: Path,
    inside: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    streams: Sequence[str],
    form: tuple[str, ...],
    whole: bool,
) -> None:
    def ended(name: str, lines: int | None) -> int:
        """How many lines there were."""
        monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / f"state of {name}"))
        with PlayedTwin.up(tmp_path / name, topology=MIRROR) as twin:
            monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
            OPERATIONS[operation].before(twin, inside)
            capsys.readouterr()
            with read_by(monkeypatch, streams, lines) as pipe:
                code = run([*OPERATIONS[operation].words, "--yes", *form], time_now())
            printed = capsys.readouterr().out
            assert code == 0, (lines, code)
            assert OPERATIONS[operation].wanted(twin), lines
            assert not form or json.loads(printed)["exit_code"] == 0  # the other stream has its reader still
            runs = done(inside("runs", "list")).document["data"]["runs"]
            assert runs[0]["outcome"] == "ok", lines
        return pipe.seen

    total = ended("read to the end", None)
    assert total > 3
    for lines in moments(range(total), whole=whole, of=f"{operation} {streams}"):
        ended(f"left after {lines}", lines)
