"""Processes that outlive the command that started them, identified by pid and start time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from dr_ctl.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP_S = 0.02
# For every JVM of a lab, for small machines and short runs: one collector thread, only the quick compiler, no bytecode
# verification. A start takes half the time.
LIGHT: Final = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Process:
    """A pid with its start time: together they identify one process."""

    pid: int
    started: int

    @classmethod
    def of_pid(cls, pid: int) -> Self:
        """Identify a running process. EnvironmentFault where /proc has no entry."""
        stat = _stat(pid)
        if stat is None:
            raise EnvironmentFault(f"process {pid} has no entry under /proc", remedy="A lab needs Linux.")
        return cls(pid, stat[1])

    def alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and stat[1] == self.started and stat[0] not in "ZX"

    def frozen(self) -> bool:
        """Say whether it is stopped by SIGSTOP: it holds its ports and answers nothing."""
        return self.alive() and (stat := _stat(self.pid)) is not None and stat[0] == "T"


# Only children of this process need reaping; those of earlier commands belong to init.
_children: dict[Process, subprocess.Popen[bytes]] = {}


def launch(argv: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a program in a session of its own, so that it outlives this process; append its output to `log`."""
    _reap()
    try:
        with log.open("ab") as out:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise EnvironmentFault(f"{argv[0]} cannot be started: {error.strerror or error}") from error
    try:
        process = Process.of_pid(child.pid)  # a child keeps its /proc entry until it is waited for
    except EnvironmentFault:
        child.kill()  # without an identity, no `lab down` could end it
        child.wait()
        raise
    _children[process] = child
    return process


def send(process: Process, signum: signal.Signals) -> bool:
    """Send a signal to the process; False where it has ended."""
    if not process.alive():
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signum)
        return True
    return False


def wait_ended(process: Process, within_s: float) -> bool:
    """Wait until the process has ended; False after `within_s`."""
    until = time.monotonic() + within_s
    while process.alive():
        if time.monotonic() > until:
            return False
        time.sleep(STEP_S)
    if (child := _children.pop(process, None)) is not None:
        child.wait(timeout=5)
    _reap()
    return True


def _reap() -> None:
    """Wait for children that another program has ended. Several threads may end processes at the same time."""
    for process, child in [*_children.items()]:
        if child.poll() is not None:
            _children.pop(process, None)


def end(process: Process, *, within_s: float) -> None:
    """Send SIGTERM, and after `within_s` SIGKILL. A frozen process is thawed first."""
    if send(process, signal.SIGTERM):
        send(process, signal.SIGCONT)
    if not wait_ended(process, within_s):
        kill(process)


def kill(process: Process) -> None:
    """Send SIGKILL and wait for the end; its ports are free then."""
    send(process, signal.SIGKILL)
    if not wait_ended(process, 10):
        raise EnvironmentFault(f"process {process.pid} does not end, not even with SIGKILL")


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start time of a pid; None where it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name in parentheses may hold anything
    return fields[0], int(fields[19])
