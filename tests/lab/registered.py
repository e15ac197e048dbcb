"""A kind of lab that only tests register: a broker is a process that does nothing, its doors are files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dr_ctl.core.errors import UsageError
from dr_ctl_lab.lab import daemons
from dr_ctl_lab.lab.make import Kind, Make, Options
from dr_ctl_lab.lab.state import SiteState

FOLDERS: dict[str, Path] = {}


def options(told: Options) -> Options:
    if unknown := set(told) - {"color"}:
        raise UsageError(f"folders have no {unknown.pop()}")
    return {"color": "red", **told}


def create(home: Path, instance: Path, make: Make) -> None:
    instance.mkdir()
    FOLDERS[make.site.broker] = instance
    told = f"{make.options['color']} {','.join(make.queues)} to {make.peer.name}"
    (instance / "made").write_text(make.edit(told) if make.edit else told)


def start(instance: Path) -> daemons.Process:
    program = "import sys; sys.stdin.read(); import time; time.sleep(600)"
    return daemons.launch([sys.executable, "-c", program], cwd=instance, log=instance / "log")


class Folder:
    """The management of such a broker."""

    def __init__(self, site: SiteState, *, timeout_s: float = 5.0) -> None:
        self._folder = FOLDERS[site.broker]

    def active(self) -> bool:
        return (self._folder / "made").exists()

    def prepare(self) -> None:
        (self._folder / "prepared").touch()

    def link_attached(self, peer: str) -> bool:
        return True

    def clients_open(self, acceptor: str = "clients") -> bool:
        return (self._folder / acceptor).exists()

    def open_clients(self, acceptor: str = "clients") -> None:
        (self._folder / acceptor).touch()

    def close_clients(self, acceptor: str = "clients") -> None:
        (self._folder / acceptor).unlink(missing_ok=True)

    def create_queue(self, name: str) -> None:
        (self._folder / f"{name}.queue").touch()

    def served(self, queues: Sequence[str]) -> list[str]:
        return list(queues) if self.clients_open() else []

    def depths(self) -> dict[str, int]:
        return {path.stem: len(path.read_text().splitlines()) for path in self._folder.glob("*.queue")}

    def depth(self, queue: str) -> int:
        return self.depths().get(queue, 0)


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    return {"name": site.pair, "folder": str(FOLDERS[site.broker]), "secret": secret}


KIND = Kind(
    joined="copy each other",
    distribution=None,
    ports=("clients", "copies"),
    link_target="copies",
    options=options,
    create=create,
    start=start,
    admin=Folder,
    settings=settings,
    logs=("log",),
)
