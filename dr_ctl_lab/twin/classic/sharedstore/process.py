"""The process of a simulated broker, as commands of the machine see it: a file while it runs, and one that asks for its
start."""

import sys
from functools import partial
from pathlib import Path
from typing import Final

from dr_ctl.core.system import system
from dr_ctl_lab.twin.network import network

FOLDER: Final = "processes"
NOT_RUNNING: Final = 3
# Asks by a file, which is gone once it runs.
_ASK: Final = """
import pathlib, sys, time
asks = pathlib.Path(sys.argv[1])
asks.touch()
while asks.exists():
    time.sleep(0.02)
"""


class ProcessFiles:
    """The files of one broker; without a folder there are none, and nobody asks."""

    def __init__(self, home: Path | None, name: str) -> None:
        self._runs = home and home / FOLDER / name
        self._asked = home and home / FOLDER / f"{name}.start"
        if home is not None and self._runs is not None and self._asked is not None:
            self._runs.parent.mkdir(exist_ok=True)
            if (wires := network()) is not None:
                wires.add_program(state(name), home, partial(_told, self._runs))
                wires.add_program(start(name), home, partial(_started, self._asked))

    def tell(self, *, running: bool) -> None:
        if self._runs is not None and running:
            self._runs.touch()
        elif self._runs is not None:
            self._runs.unlink(missing_ok=True)

    @property
    def asked(self) -> bool:
        """Say whether somebody waits for its start."""
        return self._asked is not None and self._asked.exists()

    def answer(self) -> None:
        if self._asked is not None:
            self._asked.unlink(missing_ok=True)


def _told(runs: Path) -> int:
    return 0 if runs.exists() else NOT_RUNNING


def _started(asked: Path) -> int:
    asked.touch()
    while asked.exists():
        system().sleep(0.02)
    return 0


def state(name: str) -> list[str]:
    """The words that ask whether it runs: 0 or, as of a service, 3."""
    return ["/bin/sh", "-c", f"test -e {FOLDER}/{name} || exit 3"]


def start(name: str) -> list[str]:
    """The command that starts the broker, and ends when the broker runs."""
    return [sys.executable, "-I", "-S", "-c", _ASK, f"{FOLDER}/{name}.start"]
