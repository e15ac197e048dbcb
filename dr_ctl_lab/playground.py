"""A twin that stands: simulated brokers in a process of their own, which commands of other processes work on.

The process holds everything in memory, and answers on loopback to whoever has the key from the twin's directory.
`Playground` is that twin in the words of `Lab`: two sites to play with, on a machine without Java.
"""

import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.context import AuthenticationError
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from pydantic import TypeAdapter

from dr_ctl.core.errors import DrCtlError, EnvironmentFault, UsageError
from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab import daemons, loads
from dr_ctl_lab.lab.stage import Loadable
from dr_ctl_lab.lab.state import PAIR
from dr_ctl_lab.lab.status import LabStatus
from dr_ctl_lab.lab.traffic import Target
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.nodes import Layout
from dr_ctl_lab.twin.site import SETTINGS

FILE: Final = "playground.json"
LOG: Final = "playground.log"
LOOPBACK: Final = "127.0.0.1"
UP_S: Final = 60.0
DOWN_S: Final = 15.0
STEP_S: Final = 0.02
ASKED: Final = ("kill", "start", "cut", "heal", "left", "status", "at_clients")


@dataclass(frozen=True, slots=True)
class Standing:
    """What the directory knows of the process: where it answers, and with which key."""

    process: daemons.Process
    port: int
    key: str
    queues: tuple[str, ...]
    pairs: tuple[str, ...]


class _Manager(BaseManager):
    """The way to the twin of another process."""

    if TYPE_CHECKING:

        def twin(self) -> PlayedTwin: ...


class Playground(Loadable):
    """A twin that stands; each method is carried out by the process that holds it."""

    def __init__(self, directory: Path, standing: Standing) -> None:
        self.directory, self._standing = directory, standing

    @classmethod
    def up(
        cls,
        directory: Path,
        *,
        sites: tuple[str, str],
        queues: Sequence[str],
        delay_ms: float,
        topology: str,
        pairs: int,
        nodes: int = 1,
        replicates: bool = False,
    ) -> Self:
        """Start one and return when its first site serves. EnvironmentFault, with what it said, where it does not come
        up; nothing is left of it then."""
        names = [PAIR, *(f"orders-{number}" for number in range(2, pairs + 1))]
        PlayedTwin.validate(topology, sites, sites[0], names, Layout(nodes, replicates))
        directory = directory.resolve()
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty", remedy="`dr-ctl lab down` ends a lab that is up there.")
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        wanted = {
            "sites": sites,
            "serving": sites[0],
            "queues": queues,
            "pairs": names,
            "delay_ms": delay_ms,
            "topology": topology,
            "layout": {"nodes": nodes, "replicates": replicates},
        }
        argv = [sys.executable, "-m", __name__, str(directory), json.dumps(wanted)]
        process = daemons.launch(argv, cwd=directory, log=directory / LOG)
        until = time.monotonic() + UP_S
        with (directory / LOG).open(encoding="utf-8", errors="replace") as log:  # read also once its name is gone
            while not (directory / FILE).exists():
                if not process.alive() or time.monotonic() > until:
                    daemons.end(process, within_s=DOWN_S)
                    shutil.rmtree(directory, ignore_errors=True)
                    raise EnvironmentFault(f"the twin did not come up: {log.read().strip()}")
                time.sleep(STEP_S)
        return cls.open(directory)

    @classmethod
    def is_at(cls, directory: Path) -> bool:
        return (directory / FILE).exists()

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Take up a twin that an earlier command started; UsageError where the directory tells of none."""
        directory = directory.resolve()
        try:
            return cls(directory, TypeAdapter(Standing).validate_json((directory / FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{directory / FILE} tells of no twin: {error}", remedy="`dr-ctl lab up --on twin` starts one."
            ) from None

    @property
    def settings_path(self) -> Path:
        return self.directory / SETTINGS

    @property
    def ledgers(self) -> Path:
        path = self.directory / "ledgers"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    @property
    def queues(self) -> tuple[str, ...]:
        return self._standing.queues

    @property
    def pairs(self) -> tuple[str, ...]:
        return self._standing.pairs

    def down(self) -> None:
        """End who loads the twin, end its process, and remove the directory."""
        loads.end_all(self.directory)
        daemons.end(self._standing.process, within_s=DOWN_S)
        shutil.rmtree(self.directory, ignore_errors=True)  # it is there still where the process had been killed

    def kill(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        self._twin().kill(site, pair, node)

    def start(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        self._twin().start(site, pair, node)

    def cut(self, site_from: str | None = None, mode: str = "refuse") -> None:
        self._twin().cut(site_from, mode)

    def heal(self, site_from: str | None = None) -> None:
        self._twin().heal(site_from)

    def status(self) -> LabStatus:
        return self._twin().status()

    def target(self, pair: str | None = None) -> Target:
        twin = self._twin()
        return replace(twin.at_clients(pair), remaining=partial(twin.left))

    def _twin(self) -> PlayedTwin:
        if self._standing.process.frozen():
            raise EnvironmentFault(
                f"the process {self._standing.process.pid} of {self.directory} is stopped, and answers nothing",
                remedy=f"`kill -CONT {self._standing.process.pid}` lets it go on.",
            )
        manager = _Manager((LOOPBACK, self._standing.port), bytes.fromhex(self._standing.key))
        try:
            manager.connect()
            return manager.twin()
        except (OSError, EOFError, AuthenticationError) as error:
            raise EnvironmentFault(
                f"the twin of {self.directory} does not answer: {error}",
                remedy=f"`dr-ctl lab down --dir {self.directory}` removes what is left of it.",
            ) from error


_Manager.register("twin", exposed=ASKED)


def serve(directory: Path, wanted: dict[str, Any]) -> None:
    """Hold a twin until this process is ended; the twin is gone with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process = daemons.Process.of_pid(os.getpid())
    with PlayedTwin.up(directory, **wanted, allowed_files=(LOG,)) as twin:
        _Manager.register("twin", callable=lambda: twin, exposed=ASKED)
        key = secrets.token_bytes(32)
        server = _Manager((LOOPBACK, 0), key).get_server()
        _, port = cast("tuple[str, int]", server.address)
        options = {
            "process": {"pid": process.pid, "started": process.started},
            "port": port,
            "key": key.hex(),
            "queues": twin.queues,
            "pairs": twin.pairs,
        }
        write_text(directory / FILE, json.dumps(options, indent=2))
        (directory / FILE).chmod(0o600)
        server.serve_forever()


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    try:
        serve(Path(sys.argv[1]), {**given, "sites": tuple(given["sites"]), "layout": Layout(**given["layout"])})
    except DrCtlError as error:
        sys.exit(str(error))
