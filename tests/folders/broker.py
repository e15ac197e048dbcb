"""A broker that is a folder: a queue is a file whose lines are messages, its door is a file, and so is the outflow.

It lives while its file `alive` is there. What lies in its outflow is shipped whenever somebody looks at it, unless its
file `cut` is there: a link that is whoever looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Role


class Gone(BrokerError):
    """The broker does not live."""


@dataclass(frozen=True)
class View:
    """One look at a broker: which doors are open, which queues paused, what lies where."""

    site: str
    pair: str
    doors: dict[str, bool]
    paused: dict[str, bool]
    queues: dict[str, list[str]]
    outflow: list[str]

    @property
    def open(self) -> bool:
        return any(self.doors.values())

    @property
    def role(self) -> Role:
        return Role.SERVING if self.open else Role.STANDBY


@dataclass(frozen=True)
class FolderBroker:
    """The broker itself, for clients and for management."""

    site: str
    pair: str
    folder: Path

    def look(self) -> View:
        """Raises `Gone`."""
        if not self.file("alive").exists():
            raise Gone(f"{self.site}/{self.pair} does not live: {self.folder} has no file `alive`")
        names = sorted(path.name for path in (self.folder / "queues").iterdir())
        return View(
            self.site,
            self.pair,
            {name: self.file(f"doors/{name}").exists() for name in names},
            {name: self.file(f"paused/{name}").exists() for name in names},
            {name: self.lines(f"queues/{name}") for name in names},
            self.lines("outflow"),
        )

    def ship(self, peer: FolderBroker) -> None:
        """Hand what is to ship over to the peer, where both live and nothing cuts the link or keeps it out."""
        reachable = peer.file("alive").exists() and not (self.file("cut").exists() or peer.file("closed").exists())
        for line in self.lines("outflow") if reachable and self.file("alive").exists() else ():
            queue, message = line.split(" ", 1)
            peer.add(f"queues/{queue}", message)
        if reachable and self.file("alive").exists():
            self.file("outflow").write_text("", encoding="utf-8")

    def send(self, queue: str, message: str) -> None:
        """What a client does while the door is open: its message is kept here, and to be shipped."""
        assert self.file(f"doors/{queue}").exists(), f"no client of {queue} is let in at {self.site}"
        self.add(f"queues/{queue}", message)
        self.add("outflow", f"{queue} {message}")

    def put(self, path: str, present: bool) -> None:
        """Bring about that a file is there, or is not. Raises `Gone`."""
        self.look()
        if present:
            self.file(path).touch()
        else:
            self.file(path).unlink(missing_ok=True)

    def add(self, path: str, line: str) -> None:
        with self.file(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def lines(self, path: str) -> list[str]:
        return self.file(path).read_text(encoding="utf-8").splitlines()

    def file(self, path: str) -> Path:
        return self.folder / path


def made(folder: Path, site: str, pair: str, queues: tuple[str, ...], *, serving: bool) -> FolderBroker:
    """A new broker that lives."""
    broker = FolderBroker(site, pair, folder)
    for name in ("doors", "paused", "queues"):
        (folder / name).mkdir(parents=True)
    for path in (
        "alive",
        "outflow",
        *(f"queues/{queue}" for queue in queues),
        *(f"doors/{queue}" for queue in queues if serving),
    ):
        broker.file(path).touch()
    return broker
