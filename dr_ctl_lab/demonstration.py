"""`demo`: the main job on two real brokers or on a twin, with the very commands that an operator types; a ledger
judges."""

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
LEAST_RUNS: Final = 3  # a move there, and back after a failover
RECORD_S: Final = 15.0
RECORD_ON_TWIN_S: Final = 5.0
AFTER: Final = 900  # messages
SEEN_WITHIN_S: Final = 20.0
COMMAND_S: Final = 900.0  # a command that hangs; on a busy machine the estimate alone takes minutes
AGAIN_S: Final = 0.2
# A twin needs no Java, so a machine without any may well run it; Spark is the one part that does.
NO_ESTIMATE: Final = found("DR-DEMO-002.no_java")

# Where nothing is at risk, no objective can be missed either, and a few seconds show of none that it is met.
FEW_LOOKS: Final = found("DR-DEMO-002.too_short")

Stage = Lab | PlayedTwin


class On(Enum):
    """Brokers that a demo runs on."""

    BROKERS = "brokers"
    TWIN = "twin"


def demo(out: TextIO | None, directory: Path, on: On, topology: str = MIRROR) -> Result:
    """Tell it all to `out`; where that is None, nothing but the result. Exit 0 only when every command did and the
    ledger found nothing lost and nothing twice."""
    home = directory.resolve() / ("lab" if on is On.BROKERS else "twin")
    directory = directory.resolve()
    _take_down_old(home)
    tell = _Teller(out, directory / "state", home)
    stage: type[Lab | PlayedTwin] = Lab if on is On.BROKERS else PlayedTwin
    what = "real brokers" if on is On.BROKERS else "simulated brokers"
    joined = (LABS if on is On.BROKERS else TWINS).named(topology).joined
    record_s = RECORD_S if on is On.BROKERS else RECORD_ON_TWIN_S
    skipped = on is On.TWIN and not _java_is_there()
    tell.chapter(f"Two {what} that {joined}, {2 * DELAY_MS} ms apart; london serves.")
    with stage.up(home, delay_ms=DELAY_MS, topology=topology) as lab, _agent(lab, tell):
        tell.run("status")
        tell.chapter(f"Clients send and receive {RATE:.0f} messages a second; every id goes into a ledger.")
        with lab.load(RATE, work_ms=1) as traffic:
            with recording(load(lab.settings_path), every_s=EVERY_S):
                tell.chapter(f"The monitor records {record_s:.0f} seconds of history.")
                system().sleep(record_s)
            tell.chapter(NO_ESTIMATE.text if skipped else "If london died now: what would be lost?")
            codes = {} if skipped else {"estimate": tell.run("rpo", "estimate")}
            tell.chapter("What would a swapover do? A dry run changes nothing.")
            dry = tell.run("swapover", "--to", "paris", "--dry-run")
            tell.chapter("The swapover, under load.")
            moved = tell.run("swapover", "--to", "paris", "--yes")
            again = tell.run("swapover", "--to", "paris", "--yes")
            traffic.wait_for(traffic.counts().sent + AFTER)
            planned = traffic.stop()
        tell.chapter(f"The ledger: {planned.summary}.")
        codes |= {"dry run": dry, "swapover": moved, "the same again": again}
        lost = _lost_and_back(lab, tell, codes)
    return _judged(planned, lost, tell, codes, [NO_ESTIMATE] if skipped else [])


@contextmanager
def _agent(lab: Stage, tell: _Teller) -> Iterator[None]:
    """The agent beside real brokers whose topology has one, started again whenever it ends, as a service manager does;
    a twin has it inside."""
    if not isinstance(lab, Lab) or load(lab.settings_path).settings.topology != BROKERSYNC:
        yield
        return
    tell.chapter("`dr-ctl sync` runs beside: it removes at the standby what was consumed.")
    over, agents = threading.Event(), list[subprocess.Popen[bytes]]()
    keeping = threading.Thread(target=lambda: tell.keep("sync", over=over, started=agents), name="sync")
    keeping.start()
    try:
        yield
    finally:
        over.set()
        agents[-1].terminate()
        keeping.join(COMMAND_S)


def _java_is_there() -> bool:
    return shutil.which("java") is not None or bool(os.environ.get("JAVA_HOME"))


@dataclass(frozen=True, slots=True)
class _Lost:
    """Answers of a failover and of the ledger after it: before the lost site was taken in again, and at the end."""

    bounds: Mapping[str, Any]
    before: Verdict
    after: Verdict

    def wrong(self) -> list[str]:
        """Everything in which what was said does not hold."""
        duplicates = self.bounds["duplicates"]["at_most"]
        items = []
        if duplicates is None or len(self.before.duplicates) > duplicates:
            items.append(f"{len(self.before.duplicates)} duplicates, at most {duplicates} were announced")
        if not self.after.drained:
            items.append(f"the queues were not seen empty: {len(self.after.lost)} message(s) lie there, or are lost")
        elif self.after.lost:
            items.append(f"{len(self.after.lost)} lost after the return")
        if doubled := set(self.after.duplicates) - set(self.before.duplicates):
            items.append(f"{len(doubled)} doubled by the return")
        return items


def _typed(at_most: int | None) -> str:
    return "unknown" if at_most is None else str(at_most)


def _lost_and_back(lab: Stage, tell: _Teller, codes: dict[str, int]) -> _Lost:
    with lab.load(RATE, work_ms=1) as traffic:
        with recording(load(lab.settings_path), every_s=EVERY_S):
            traffic.wait_for(AFTER)
            tell.chapter("paris dies: its broker is killed with messages under way.")
            lab.kill("paris")
            _until_recorded(lab)
        tell.chapter("How much would be lost without it? Nobody accepts any loss: if there is some, nothing is done.")
        codes["failover, no loss accepted"] = tell.run("failover", "--to", "london", "--yes")
        bounds = tell.bounds("failover", "--to", "london", "--dry-run")
        lost, duplicates = (_typed(bounds[key]["at_most"]) for key in ("lost", "duplicates"))
        accepted = ("--accept-loss", lost, "--accept-duplicates", duplicates)
        tell.chapter("The failover, with that loss and these duplicates accepted.")
        codes["failover"] = tell.run("failover", "--to", "london", "--yes", *accepted)
        if codes["failover"] != ExitCode.OK:
            raise EnvironmentFault(f"nobody serves: the failover ended with {codes['failover']}")
        traffic.wait_for(traffic.counts().sent + AFTER)
        before = traffic.ledger.verdict(drained=False)
        tell.chapter(
            "paris is back. What it still holds is let in without doubling anything; then the service moves back."
        )
        lab.start("paris")
        codes["failback"] = tell.run("failback", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + AFTER)
        after = traffic.stop()
    codes["status"] = tell.run("status")
    return _Lost(bounds, before, after)


def _until_recorded(lab: Stage) -> None:
    """Wait until the history says that paris is down: from then on its bounds do not grow."""
    installation = load(lab.settings_path)
    history = installation.history
    until = boottime_s() + SEEN_WITHIN_S
    while not len(recent(history, "paris").saw(Role.DOWN)):
        if boottime_s() > until:
            raise EnvironmentFault(f"the monitor has not written within {SEEN_WITHIN_S:.0f} s that paris is down")
        system().sleep(EVERY_S)


def _judged(planned: Verdict, lost: _Lost, tell: _Teller, codes: Mapping[str, int], notes: Sequence[Finding]) -> Result:
    runs = sorted((tell.state / "runs").glob("*-*"))
    # The standby may have taken the service over before anybody asked: a failover finds that done, without a run.
    is_run = any("-failover-" in run.name for run in runs)
    costs = is_run and any(lost.bounds[key]["at_most"] != 0 for key in ("lost", "duplicates"))
    allowed = {
        "estimate": (ExitCode.OK, ExitCode.LOSS_REFUSED, ExitCode.UNKNOWN),
        "failover, no loss accepted": (ExitCode.LOSS_REFUSED if costs else ExitCode.OK,),
    }
    wrong = [f"{name} ended with {code}" for name, code in codes.items() if code not in allowed.get(name, (0,))]
    clean = planned.clean and not planned.redelivered
    unkept = lost.wrong()
    shown = [str(run / "report.html") for run in runs if (run / "report.html").exists()]
    least = max(len(runs), LEAST_RUNS if is_run else LEAST_RUNS - 1)
    if len(shown) < least:
        wrong.append(f"{len(shown)} reports were written, not {least}")
    data: dict[str, Json] = {
        "ledger": document(planned),
        "failover": {
            "bounds": dict(lost.bounds),
            "before_return": document(lost.before),
            "ledger": document(lost.after),
        },
        "report": shown[0] if shown else None,
        "reports": [*shown],
        "codes": dict(codes),
    }
    findings = [*notes]
    if codes.get("estimate") == ExitCode.UNKNOWN:
        findings.append(FEW_LOOKS)
    findings += [found("DR-DEMO-001", wrong=text) for text in (*wrong, *unkept)]
    text = page(
        (
            f"swapover: {planned.summary}",
            f"failover and failback: {lost.after.summary}",
            f"the reports: {', '.join(shown)}",
        )
    )
    if not clean or wrong or unkept:
        code = ExitCode.INTERNAL if wrong else ExitCode.LOSS_REFUSED
        return Result(code, "; ".join((*wrong, *unkept)) or "not clean", findings, data, text=text)
    end = "no loss and no duplicates by the swapover; the failover kept its bounds; no duplicates by the return"
    return Result(ExitCode.OK, end, findings, data, text=text)


class _Teller:
    """Runs commands as an operator would, showing each."""

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
        """Run one command to its end, and give its exit code."""
        if self._out is not None:
            print(f"\n$ dr-ctl {' '.join(words)}", file=self._out, flush=True)
        quiet: Sequence[str] = () if self._out is not None else ("--quiet",)
        out = self._out if self._out is not None else subprocess.DEVNULL
        command = [sys.executable, "-m", "dr_ctl", *words, *quiet]
        try:
            done = subprocess.run(command, env=self._environment, stdout=out, timeout=COMMAND_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(f"{' '.join(words)} took longer than {COMMAND_S:.0f} s") from error
        return done.returncode

    def keep(self, *words: str, over: threading.Event, started: list[subprocess.Popen[bytes]]) -> None:
        """Have a command run, started again when it ends, until it is over."""
        command = [sys.executable, "-m", "dr_ctl", *words, "--quiet"]
        while not over.is_set():
            started.append(subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL))
            started[-1].wait()
            over.wait(AGAIN_S)

    def bounds(self, *words: str) -> Mapping[str, Any]:
        """Ask a command what may be lost and come twice, without showing it."""
        command = [sys.executable, "-m", "dr_ctl", *words, "--json", "--quiet"]
        done = subprocess.run(
            command, env=self._environment, stdout=subprocess.PIPE, timeout=COMMAND_S, check=False, text=True
        )
        document: dict[str, Any] = json.loads(done.stdout)
        if "bounds" not in document["data"]:
            raise EnvironmentFault(f"{' '.join(words)}: {document['summary']}")
        mapping: Mapping[str, Any] = document["data"]["bounds"]
        return mapping


def _take_down_old(directory: Path) -> None:
    """End what a demo that was killed left behind."""
    if (directory / "lab.json").exists():
        Lab.open(directory).down()
    elif (directory / MARK).exists():
        shutil.rmtree(directory)  # brokers ended with the lab
