"""`demo`: a swapover, a failover and a failback on two real brokers or on a twin; a ledger judges each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TextIO

from dr_ctl.application.result import Result
from dr_ctl.core.document import document
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role
from dr_ctl.core.notation import page
from dr_ctl.core.system import boottime_s, system
from dr_ctl.rpo.history.newest import recent
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.kinds import BROKERSYNC, MIRROR
from dr_ctl_lab.lab.kinds import KINDS as LABS
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Verdict
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.recording import recording
from dr_ctl_lab.twin.kinds import KINDS as TWINS
from dr_ctl_lab.twin.site import MARK

RATE: Final = 300.0
DELAY_MS: Final = 25
EVERY_S: Final = 0.5
MIN_RUNS: Final = 3  # a swapover, a failover and a failback
RECORD_S: Final = 15.0
RECORD_ON_TWIN_S: Final = 5.0
SENDS: Final = 900  # messages
SEEN_WITHIN_S: Final = 20.0
COMMAND_S: Final = 900.0  # on a busy machine the estimate alone takes minutes
RESTART_S: Final = 0.2
# A twin needs no Java; only Spark does.
NO_ESTIMATE: Final = found("DR-DEMO-002.no_java")
# A few seconds of history do not show that an objective is met.
TOO_SHORT: Final = found("DR-DEMO-002.too_short")

Stage = Lab | PlayedTwin


class On(Enum):
    """Brokers that a demo runs on."""

    BROKERS = "brokers"
    TWIN = "twin"


def demo(out: TextIO | None, directory: Path, on: On, topology: str = MIRROR) -> Result:
    """Show all steps on `out`, or only the result where that is None. Exit 0 only when every command succeeded and the
    ledger found no loss and no duplicates."""
    home = directory.resolve() / ("lab" if on is On.BROKERS else "twin")
    directory = directory.resolve()
    _remove_old(home)
    console = _Console(out, directory / "state", home)
    stage: type[Lab | PlayedTwin] = Lab if on is On.BROKERS else PlayedTwin
    brokers = "real brokers" if on is On.BROKERS else "simulated brokers"
    joined = (LABS if on is On.BROKERS else TWINS).named(topology).joined
    record_s = RECORD_S if on is On.BROKERS else RECORD_ON_TWIN_S
    skipped = on is On.TWIN and not _has_java()
    console.chapter(f"Two {brokers} that {joined}, {2 * DELAY_MS} ms apart; london serves.")
    with stage.up(home, delay_ms=DELAY_MS, topology=topology) as lab, _agent(lab, console):
        console.run("status")
        console.chapter(f"Clients send and receive {RATE:.0f} messages a second; every id goes into a ledger.")
        with lab.load(RATE, work_ms=1) as traffic:
            with recording(load(lab.settings_path), every_s=EVERY_S):
                console.chapter(f"The monitor records {record_s:.0f} seconds of history.")
                system().sleep(record_s)
            console.chapter(NO_ESTIMATE.text if skipped else "If london died now: what would be lost?")
            codes = {} if skipped else {"estimate": console.run("rpo", "estimate")}
            console.chapter("What would a swapover do? A dry run changes nothing.")
            dry = console.run("swapover", "--to", "paris", "--dry-run")
            console.chapter("The swapover, under load.")
            swapover = console.run("swapover", "--to", "paris", "--yes")
            repeated = console.run("swapover", "--to", "paris", "--yes")
            traffic.wait_for(traffic.counts().sent + SENDS)
            planned = traffic.stop()
        console.chapter(f"The ledger: {planned.summary}.")
        codes |= {"dry run": dry, "swapover": swapover, "the same again": repeated}
        result = _failover_and_failback(lab, console, codes)
    return _result(planned, result, console, codes, [NO_ESTIMATE] if skipped else [])


@contextmanager
def _agent(lab: Stage, console: _Console) -> Iterator[None]:
    """Run the agent beside real brokers of classic-brokersync, and restart it as a service manager would. A twin has
    its own agent."""
    if not isinstance(lab, Lab) or load(lab.settings_path).settings.topology != BROKERSYNC:
        yield
        return
    console.chapter("`dr-ctl sync` runs beside: it removes at the standby what was consumed.")
    stop, agents = threading.Event(), list[subprocess.Popen[bytes]]()
    thread = threading.Thread(target=lambda: console.keep_running("sync", stop=stop, started=agents), name="sync")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        agents[-1].terminate()
        thread.join(COMMAND_S)


def _has_java() -> bool:
    return shutil.which("java") is not None or bool(os.environ.get("JAVA_HOME"))


@dataclass(frozen=True, slots=True)
class _FailoverResult:
    """The bounds of a failover, and the ledger's verdicts before the lost site's return and at the end."""

    bounds: Mapping[str, Any]
    before: Verdict
    after: Verdict

    def wrong(self) -> list[str]:
        """Violations of the announced bounds."""
        duplicates = self.bounds["duplicates"]["at_most"]
        problems = []
        if duplicates is None or len(self.before.duplicates) > duplicates:
            problems.append(f"{len(self.before.duplicates)} duplicates, at most {duplicates} were announced")
        if not self.after.drained:
            problems.append(f"the queues were not seen empty: {len(self.after.lost)} message(s) lie there, or are lost")
        elif self.after.lost:
            problems.append(f"{len(self.after.lost)} lost after the return")
        if duplicated := set(self.after.duplicates) - set(self.before.duplicates):
            problems.append(f"{len(duplicated)} doubled by the return")
        return problems


def _limit(at_most: int | None) -> str:
    return "unknown" if at_most is None else str(at_most)


def _failover_and_failback(lab: Stage, console: _Console, codes: dict[str, int]) -> _FailoverResult:
    with lab.load(RATE, work_ms=1) as traffic:
        with recording(load(lab.settings_path), every_s=EVERY_S):
            traffic.wait_for(SENDS)
            console.chapter("paris dies: its broker is killed with messages under way.")
            lab.kill("paris")
            _wait_recorded(lab)
        console.chapter(
            "How much would be lost without it? Nobody accepts any loss: if there is some, nothing is done."
        )
        codes["failover, no loss accepted"] = console.run("failover", "--to", "london", "--yes")
        bounds = console.bounds("failover", "--to", "london", "--dry-run")
        loss, duplicates = (_limit(bounds[key]["at_most"]) for key in ("lost", "duplicates"))
        accepted = ("--accept-loss", loss, "--accept-duplicates", duplicates)
        console.chapter("The failover, with that loss and these duplicates accepted.")
        codes["failover"] = console.run("failover", "--to", "london", "--yes", *accepted)
        if codes["failover"] != ExitCode.OK:
            raise EnvironmentFault(f"nobody serves: the failover ended with {codes['failover']}")
        traffic.wait_for(traffic.counts().sent + SENDS)
        before = traffic.ledger.verdict(drained=False)
        console.chapter(
            "paris is back. What it still holds is let in without doubling anything; then the service moves back."
        )
        lab.start("paris")
        codes["failback"] = console.run("failback", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + SENDS)
        after = traffic.stop()
    codes["status"] = console.run("status")
    return _FailoverResult(bounds, before, after)


def _wait_recorded(lab: Stage) -> None:
    """Wait until the history has paris as down: its bounds do not grow after that."""
    installation = load(lab.settings_path)
    history = installation.history
    until = boottime_s() + SEEN_WITHIN_S
    while not len(recent(history, "paris").saw(Role.DOWN)):
        if boottime_s() > until:
            raise EnvironmentFault(f"the monitor has not written within {SEEN_WITHIN_S:.0f} s that paris is down")
        system().sleep(EVERY_S)


def _result(
    planned: Verdict, result: _FailoverResult, console: _Console, codes: Mapping[str, int], notes: Sequence[Finding]
) -> Result:
    runs = sorted((console.state / "runs").glob("*-*"))
    # The standby may have taken over by itself: then the failover makes no run.
    is_run = any("-failover-" in run.name for run in runs)
    costs = is_run and any(result.bounds[key]["at_most"] != 0 for key in ("lost", "duplicates"))
    allowed = {
        "estimate": (ExitCode.OK, ExitCode.LOSS_REFUSED, ExitCode.UNKNOWN),
        "failover, no loss accepted": (ExitCode.LOSS_REFUSED if costs else ExitCode.OK,),
    }
    wrong = [f"{name} ended with {code}" for name, code in codes.items() if code not in allowed.get(name, (0,))]
    clean = planned.clean and not planned.redelivered
    violations = result.wrong()
    reports = [str(run / "report.html") for run in runs if (run / "report.html").exists()]
    expected = max(len(runs), MIN_RUNS if is_run else MIN_RUNS - 1)
    if len(reports) < expected:
        wrong.append(f"{len(reports)} reports were written, not {expected}")
    data: dict[str, Json] = {
        "ledger": document(planned),
        "failover": {
            "bounds": dict(result.bounds),
            "before_return": document(result.before),
            "ledger": document(result.after),
        },
        "report": reports[0] if reports else None,
        "reports": [*reports],
        "codes": dict(codes),
    }
    findings = [*notes]
    if codes.get("estimate") == ExitCode.UNKNOWN:
        findings.append(TOO_SHORT)
    findings += [found("DR-DEMO-001", wrong=text) for text in (*wrong, *violations)]
    after = f"failover and failback: {result.after.summary}"
    text = page((f"swapover: {planned.summary}", after, f"the reports: {', '.join(reports)}"))
    if not clean or wrong or violations:
        code = ExitCode.INTERNAL if wrong else ExitCode.LOSS_REFUSED
        return Result(code, "; ".join((*wrong, *violations)) or "not clean", findings, data, text=text)
    end = "no loss and no duplicates by the swapover; the failover kept its bounds; no duplicates by the return"
    return Result(ExitCode.OK, end, findings, data, text=text)


class _Console:
    """Runs commands as an operator would, and shows them."""

    def __init__(self, out: TextIO | None, state: Path, home: Path) -> None:
        self._out = out
        self.state = state
        self._environment = {
            **os.environ,
            "DR_CTL_CONFIG": str(home / "dr-ctl.yaml"),
            "DR_CTL_STATE_DIR": str(self.state),
        }

    def chapter(self, text: str) -> None:
        if self._out is not None:
            print(f"\n== {text}", file=self._out, flush=True)

    def run(self, *words: str) -> int:
        """Run one command; return its exit code."""
        if self._out is not None:
            print(f"\n$ dr-ctl {' '.join(words)}", file=self._out, flush=True)
        quiet: Sequence[str] = () if self._out is not None else ("--quiet",)
        out = self._out if self._out is not None else subprocess.DEVNULL
        command = [sys.executable, "-m", "dr_ctl", *words, *quiet]
        try:
            ended = subprocess.run(command, env=self._environment, stdout=out, timeout=COMMAND_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(f"{' '.join(words)} took longer than {COMMAND_S:.0f} s") from error
        return ended.returncode

    def keep_running(self, *words: str, stop: threading.Event, started: list[subprocess.Popen[bytes]]) -> None:
        """Run a command, and restart it whenever it ends, until `stop` is set."""
        command = [sys.executable, "-m", "dr_ctl", *words, "--quiet"]
        while not stop.is_set():
            started.append(subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL))
            started[-1].wait()
            stop.wait(RESTART_S)

    def bounds(self, *words: str) -> Mapping[str, Any]:
        """Run a command without showing it; return its bounds of loss and duplicates."""
        command = [sys.executable, "-m", "dr_ctl", *words, "--json", "--quiet"]
        ended = subprocess.run(
            command, env=self._environment, stdout=subprocess.PIPE, timeout=COMMAND_S, check=False, text=True
        )
        document: dict[str, Any] = json.loads(ended.stdout)
        if "bounds" not in document["data"]:
            raise EnvironmentFault(f"{' '.join(words)}: {document['summary']}")
        mapping: Mapping[str, Any] = document["data"]["bounds"]
        return mapping


def _remove_old(directory: Path) -> None:
    """Remove the brokers of a demo that was killed."""
    if (directory / "lab.json").exists():
        Lab.open(directory).down()
    elif (directory / MARK).exists():
        shutil.rmtree(directory)  # simulated brokers end with their process
