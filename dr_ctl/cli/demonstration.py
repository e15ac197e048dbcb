"""`demo`: the main job on two real brokers, with the very commands that an operator types; a ledger judges."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dr_ctl.agents.monitor import Monitor
from dr_ctl.cli.labs import verdict_text
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import ExitCode, Finding, Json, Severity
from dr_ctl.lab.lab import Lab
from dr_ctl.lab.ledger import Verdict
from dr_ctl.settings.loader import load

RATE: Final = 300.0
DELAY_MS: Final = 25
RECORD_S: Final = 15.0
AFTER_S: Final = 3.0
COMMAND_S: Final = 180.0


def demo(session: Session, directory: Path) -> Result:
    """Exit 0 only when every command did and the ledger found nothing lost and nothing twice."""
    directory = directory.resolve()
    _take_down_old(directory / "lab")
    tell = _Teller(session, directory)
    tell.chapter("Two real Artemis brokers that mirror each other over a 50 ms link; london serves.")
    with Lab.up(directory / "lab", delay_ms=DELAY_MS) as lab:
        tell.run("status")
        tell.chapter(f"Clients send and receive {RATE:.0f} messages a second; every id goes into a ledger.")
        with lab.load(RATE, work_ms=1) as traffic:
            with _recording(lab):
                tell.chapter(f"The monitor records {RECORD_S:.0f} seconds of history.")
                time.sleep(RECORD_S)
            tell.chapter("If london died now: what would be lost?")
            estimated = tell.run("rpo", "estimate")
            tell.chapter("What would a swapover do? A dry run changes nothing.")
            dry = tell.run("swapover", "--to", "paris", "--dry-run")
            tell.chapter("The swapover, under load.")
            moved = tell.run("swapover", "--to", "paris", "--yes")
            again = tell.run("swapover", "--to", "paris", "--yes")
            time.sleep(AFTER_S)
            verdict = traffic.stop()
        tell.run("status")
    return _judged(verdict, tell, {"estimate": estimated, "dry run": dry, "swapover": moved, "the same again": again})


def _judged(verdict: Verdict, tell: _Teller, codes: dict[str, int]) -> Result:
    allowed = {"estimate": (ExitCode.OK, ExitCode.LOSS_REFUSED)}
    wrong = [f"{name} ended with {code}" for name, code in codes.items() if code not in allowed.get(name, (0,))]
    clean = verdict.clean and not verdict.processed_twice
    reports = sorted((tell.state / "runs").glob("*/report.html"))
    report = str(reports[-1]) if reports else None
    if report is None:
        wrong.append("no report was written")
    data: dict[str, Json] = {"ledger": verdict.as_json(), "report": report, "codes": dict(codes)}
    findings = [Finding("DR-DEMO-001", Severity.ERROR, text) for text in wrong]
    text = f"the ledger: {verdict_text(verdict)}"
    if not clean or wrong:
        code = ExitCode.INTERNAL if wrong else ExitCode.LOSS_REFUSED
        return Result(code, f"{text}; {'; '.join(wrong) or 'not clean'}", findings, data)
    return Result(ExitCode.OK, f"{text}\nnothing lost, nothing twice; the report: {report}", findings, data)


class _Teller:
    """Runs commands as an operator would, showing each; with --json all of that goes to standard error."""

    def __init__(self, session: Session, directory: Path) -> None:
        self._session = session
        self.state = directory / "state"
        self._out = sys.stderr if session.json else sys.stdout
        self._environment = {
            **os.environ,
            "DR_CTL_CONFIG": str(directory / "lab" / "dr-ctl.yaml"),
            "DR_CTL_STATE_DIR": str(self.state),
        }

    def chapter(self, text: str) -> None:
        if not self._session.quiet:
            print(f"\n== {text}", file=self._out, flush=True)

    def run(self, *words: str) -> int:
        """Run one command to its end; its exit code."""
        if not self._session.quiet:
            print(f"\n$ dr-ctl {' '.join(words)}", file=self._out, flush=True)
        quiet: Sequence[str] = ("--quiet",) if self._session.quiet else ()
        out = subprocess.DEVNULL if self._session.quiet else self._out
        command = [sys.executable, "-m", "dr_ctl", *words, *quiet]
        try:
            done = subprocess.run(command, env=self._environment, stdout=out, timeout=COMMAND_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(f"{' '.join(words)} took longer than {COMMAND_S:.0f} s") from error
        return done.returncode


@contextmanager
def _recording(lab: Lab) -> Iterator[None]:
    """Record history beside what happens in the block, as `dr-ctl monitor` does."""
    enough = threading.Event()
    installation = load(lab.settings_path)

    def record() -> None:
        with Monitor(installation, every_s=0.5) as monitor:
            while not enough.is_set():
                monitor.sample()
                monitor.wait(None)

    thread = threading.Thread(target=record, name="monitor")
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def _take_down_old(directory: Path) -> None:
    """End what a demo that was killed left behind."""
    if (directory / "lab.json").exists():
        Lab.open(directory).down()
