"""A twin in a process of its own, which commands of other processes use.

The process answers on loopback to programs with the key from the twin's directory. `Playground` has the interface of
`Lab`, for machines without Java.
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
POLL_S: Final = 0.02
EXPOSED: Final = ("kill", "start", "cut", "heal", "left", "status", "target_without_count")


@dataclass(frozen=True, slots=True)
class PlaygroundState:
    """The state file: the process, its port and its key."""

    process: daemons.Process
    port: int
    key: str
    queues: tuple[str, ...]
    pairs: tuple[str, ...]


class _Manager(BaseManager):
    """The connection to the twin of another process."""

    if TYPE_CHECKING:

        def twin(self) -> PlayedTwin: ...


class Playground(Loadable):
    """A twin in another process; that process executes the methods."""

    def __init__(self, directory: Path, state: PlaygroundState) -> None:
        self.directory, self._state = directory, state

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
        """Start a twin; return when its first site serves. EnvironmentFault, with its output, where it does not start;
        its directory is removed then."""
        names = [PAIR, *(f"orders-{number}" for number in range(2, pairs + 1))]
        PlayedTwin.validate(topology, sites, sites[0], names, Layout(nodes, replicates))
        directory = directory.resolve()
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty", remedy="`dr-ctl lab down` ends a lab that is up there.")
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        options = {
            "sites": sites,
            "serving": sites[0],
            "queues": queues,
            "pairs": names,
            "delay_ms": delay_ms,
            "topology": topology,
            "layout": {"nodes": nodes, "replicates": replicates},
        }
        argv = [sys.executable, "-m", __name__, str(directory), json.dumps(options)]
        process = daemons.launch(argv, cwd=directory, log=directory / LOG)
        until = time.monotonic() + UP_S
        with (directory / LOG).open(encoding="utf-8", errors="replace") as log:  # it can be read even after its removal
            while not (directory / FILE).exists():
                if not process.alive() or time.monotonic() > until:
                    daemons.end(process, within_s=DOWN_S)
                    shutil.rmtree(directory, ignore_errors=True)
                    raise EnvironmentFault(f"the twin did not come up: {log.read().strip()}")
                time.sleep(POLL_S)
        return cls.open(directory)

    @classmethod
    def is_at(cls, directory: Path) -> bool:
        return (directory / FILE).exists()

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open a running twin; UsageError where the directory has none."""
        directory = directory.resolve()
        try:
            text = (directory / FILE).read_text(encoding="utf-8")
            return cls(directory, TypeAdapter(PlaygroundState).validate_json(text))
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
        return self._state.queues

    @property
    def pairs(self) -> tuple[str, ...]:
        return self._state.pairs

    def down(self) -> None:
        """End loads and process, and remove the directory."""
        loads.end_all(self.directory)
        daemons.end(self._state.process, within_s=DOWN_S)
        shutil.rmtree(self.directory, ignore_errors=True)  # a killed process has left it

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
        return replace(twin.target_without_count(pair), remaining=partial(twin.left))

    def _twin(self) -> PlayedTwin:
        if self._state.process.frozen():
            raise EnvironmentFault(
                f"the process {self._state.process.pid} of {self.directory} is stopped, and answers nothing",
                remedy=f"`kill -CONT {self._state.process.pid}` lets it go on.",
            )
        manager = _Manager((LOOPBACK, self._state.port), bytes.fromhex(self._state.key))
        try:
            manager.connect()
            return manager.twin()
        except (OSError, EOFError, AuthenticationError) as error:
            raise EnvironmentFault(
                f"the twin of {self.directory} does not answer: {error}",
                remedy=f"`dr-ctl lab down --dir {self.directory}` removes what is left of it.",
            ) from error


_Manager.register("twin", exposed=EXPOSED)


def serve(directory: Path, options: dict[str, Any]) -> None:
    """Serve a twin until this process ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process = daemons.Process.of_pid(os.getpid())
    with PlayedTwin.up(directory, **options, allowed_files=(LOG,)) as twin:
        _Manager.register("twin", callable=lambda: twin, exposed=EXPOSED)
        key = secrets.token_bytes(32)
        server = _Manager((LOOPBACK, 0), key).get_server()
        _, port = cast("tuple[str, int]", server.address)
        state = {
            "process": {"pid": process.pid, "started": process.started},
            "port": port,
            "key": key.hex(),
            "queues": twin.queues,
            "pairs": twin.pairs,
        }
        write_text(directory / FILE, json.dumps(state, indent=2))
        (directory / FILE).chmod(0o600)
        server.serve_forever()


if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    try:
        serve(Path(sys.argv[1]), {**options, "sites": tuple(options["sites"]), "layout": Layout(**options["layout"])})
    except DrCtlError as error:
        sys.exit(str(error))
