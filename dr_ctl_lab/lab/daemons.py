"""Processes that outlive the command which started them: named by pid and start time, so never a stranger's."""

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
# For every JVM of a lab: several share a small machine and live for minutes. One thread collects, only the quick
# compiler works, and classes of published archives are not verified again: a start takes half the time.
LIGHT: Final = (
    "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Process:
    """A pid and the kernel's start time of it: together they are never given twice."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Name a process that lives. EnvironmentFault where the system does not tell of it."""
        seen = _stat(pid)
        if seen is None:
            raise EnvironmentFault(f"process {pid} has no entry under /proc", remedy="A lab needs Linux.")
        return cls(pid, seen[1])

    def alive(self) -> bool:
        seen = _stat(self.pid)
        return seen is not None and seen[1] == self.started and seen[0] not in "ZX"

    def frozen(self) -> bool:
        """Stopped by SIGSTOP: a frozen process holds its ports and answers nothing."""
        return self.alive() and (seen := _stat(self.pid)) is not None and seen[0] == "T"


# Children of this very process are reaped when they end; children of an earlier command are init's.
_children: dict[Process, subprocess.Popen[bytes]] = {}


def launch(argv: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a program in a session of its own, its output appended to `log`: the program stays when we end."""
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
        process = Process.of(child.pid)  # the kernel keeps the entry of a child until it is waited for
    except EnvironmentFault:
        child.kill()  # a child that cannot be named again would outlive every `lab down`
        child.wait()
        raise
    _children[process] = child
    return process


def send(process: Process, signum: signal.Signals) -> bool:
    """Signal that very process; False where it is gone."""
    if not process.alive():
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signum)
        return True
    return False


def wait_gone(process: Process, within_s: float) -> bool:
    """Wait until it has ended; False where it still lives after that time."""
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
    """Wait for children that somebody else has ended, a command of the settings for example. Processes are ended by
    several threads at a time."""
    for process, child in [*_children.items()]:
        if child.poll() is not None:
            _children.pop(process, None)


def end(process: Process, *, within_s: float) -> None:
    """SIGTERM, and SIGKILL where that is not heeded in time. A frozen process is thawed to hear it."""
    if send(process, signal.SIGTERM):
        send(process, signal.SIGCONT)
    if not wait_gone(process, within_s):
        kill(process)


def kill(process: Process) -> None:
    """SIGKILL, and wait until it is gone; ports are free then."""
    send(process, signal.SIGKILL)
    if not wait_gone(process, 10):
        raise EnvironmentFault(f"process {process.pid} does not end, not even with SIGKILL")


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start time of a pid, or None where it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name in parentheses may hold anything
    return fields[0], int(fields[19])
