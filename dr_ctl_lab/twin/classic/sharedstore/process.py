"""The process of a simulated broker, for commands: a file that exists while it runs, and one that requests a start."""

import sys
from functools import partial
from pathlib import Path
from typing import Final

from dr_ctl.core.system import system
from dr_ctl_lab.twin.network import network

FOLDER: Final = "processes"
NOT_RUNNING: Final = 3
# Creates the start request, and waits until the broker has removed it.
_ASK: Final = """
import pathlib, sys, time
asks = pathlib.Path(sys.argv[1])
asks.touch()
while asks.exists():
    time.sleep(0.02)
"""


class ProcessFiles:
    """The files of one broker; there are none without a folder."""

    def __init__(self, home: Path | None, name: str) -> None:
        self._pid_file = home and home / FOLDER / name
        self._start_request = home and home / FOLDER / f"{name}.start"
        if home is not None and self._pid_file is not None and self._start_request is not None:
            self._pid_file.parent.mkdir(exist_ok=True)
            if (wires := network()) is not None:
                wires.add_program(state(name), home, partial(_run_state, self._pid_file))
                wires.add_program(start(name), home, partial(_request_start, self._start_request))

    def set_running(self, *, running: bool) -> None:
        if self._pid_file is not None and running:
            self._pid_file.touch()
        elif self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)

    @property
    def start_requested(self) -> bool:
        """Say whether a start is requested."""
        return self._start_request is not None and self._start_request.exists()

    def confirm_start(self) -> None:
        if self._start_request is not None:
            self._start_request.unlink(missing_ok=True)


def _run_state(pid_file: Path) -> int:
    return 0 if pid_file.exists() else NOT_RUNNING


def _request_start(start_request: Path) -> int:
    start_request.touch()
    while start_request.exists():
        system().sleep(0.02)
    return 0


def state(name: str) -> list[str]:
    """The command for its state: it exits 0 where the broker runs, else 3, as for a service."""
    return ["/bin/sh", "-c", f"test -e {FOLDER}/{name} || exit 3"]


def start(name: str) -> list[str]:
    """The command that starts the broker; it ends when the broker runs."""
    return [sys.executable, "-I", "-S", "-c", _ASK, f"{FOLDER}/{name}.start"]
