"""The runs of one installation under STATE: owner, directories, and the lock that lets one run at a time act."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.clock import Clock, stamp
from dr_ctl.core.errors import DrCtlError, UsageError
from dr_ctl.core.machine import machine_id
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.disk import RESERVE, refusing_where_full, sync_folder
from dr_ctl.engine.folders import private

_OWNER: Final = "installation.json"
_READABLE: Final = 40  # characters of an installation's name
_DIGITS: Final = 12


class Locked(DrCtlError):
    """Another run of this STATE is under way."""

    exit_code = ExitCode.LOCKED
    remedy = "Wait for it to end, or look at it: `dr-ctl runs list`."


class Foreign(UsageError):
    """The files under STATE belong to another installation."""

    remedy = "Give each installation a place of its own: leave --state-dir out, or name another one."


@dataclass(frozen=True, slots=True)
class Owner:
    """The installation that owns the runs: its name, and the identities of its brokers by site. Two owners are the same
    with one common broker or the same name: a corrected address makes no other installation."""

    name: str
    brokers: Mapping[str, Sequence[str]]

    @property
    def folder(self) -> str:
        """The name of its own place among those of other installations."""
        readable = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:_READABLE]
        digest = hashlib.sha256(repr(sorted(self._all)).encode()).hexdigest()
        return "-".join(filter(None, (readable, digest[:_DIGITS])))

    @property
    def _all(self) -> set[tuple[str, str]]:
        return {(site, each) for site, all_ in self.brokers.items() for each in all_}

    def is_same(self, other: Owner) -> bool:
        return self.has_a_broker_of(other) or self.name == other.name

    def has_a_broker_of(self, other: Owner) -> bool:
        return bool(self._all & other._all)

    def place(self, root: Path) -> Path:
        """The installation's folder below `root`. An existing folder is found again."""
        for path in sorted(root.glob(f"*/{_OWNER}")):
            with suppress(Foreign):
                if (owner := Owner.read(path)) is not None and owner.has_a_broker_of(self):
                    return path.parent
        return root / self.folder

    def as_json(self) -> dict[str, Json]:
        brokers: dict[str, Json] = {site: [*sorted(each)] for site, each in self.brokers.items()}
        return {"name": self.name, "brokers": brokers}

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """Returns None without a file. Raises `Foreign` where the file cannot be read."""
        try:
            row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(row["name"]), {str(site): [*map(str, each)] for site, each in row["brokers"].items()})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"whose runs lie in {path.parent} cannot be read: {type(error).__name__}: {error}"
            raise Foreign(text, remedy=f"Look at `dr-ctl runs list`; then mend or remove {path}.") from error


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Where one run keeps what it wrote."""

    name: str
    folder: Path

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def approved(self) -> Path:
        """The saved plan as people signed it, where the settings asked for that."""
        return self.folder / "approved.json"

    @property
    def reserve(self) -> Path:
        return self.folder / RESERVE

    def open(self) -> bool:
        """Say whether the run began and has not ended, so that work may be half done."""
        return self.journal.exists() and not self.result.exists()

    def begin(self, plan: Mapping[str, Json]) -> None:
        """Write the plan, before anything is done; raises `NoRoom` on a full disk."""
        with refusing_where_full(self.folder):
            write(self.plan, plan)


def write(path: Path, document: Mapping[str, Json]) -> None:
    """Write a document as `write_bytes` does."""
    write_text(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


class Runs:
    def __init__(self, state: Path, clock: Clock, owner: Owner | None = None) -> None:
        """Without an owner the runs are only read. Raises `Foreign`."""
        self._state = state
        self._clock = clock
        self._owner = owner
        if owner is not None:
            self._must_be_of(owner)

    @property
    def documents(self) -> Path:
        """Where the documents of brokers stand that can keep none."""
        return self._state / "documents"

    @property
    def rehearsals(self) -> Path:
        """Where rehearsals on simulated brokers leave their evidence."""
        return self._state / "rehearsals"

    @property
    def index(self) -> Path:
        """The page over all runs."""
        return self._state / "index.html"

    def all(self) -> list[RunFiles]:
        folder = self._state / "runs"
        return [RunFiles(path.name, path) for path in sorted(folder.iterdir())] if folder.is_dir() else []

    def find(self, name: str | None) -> RunFiles:
        """Find a run by its name, a unique beginning of it, or the last one; raises `UsageError`."""
        runs = self.all()
        if name is None:
            if not runs:
                raise UsageError(
                    "there is no run yet", remedy="`dr-ctl plan swapover --to SITE` shows what one would do."
                )
            return runs[-1]
        matching = [run for run in runs if run.name.startswith(name)]
        if len(matching) != 1:
            what = "no run" if not matching else f"{len(matching)} runs"
            raise UsageError(f"{what} with the name {name}", remedy="`dr-ctl runs list` shows them.")
        return matching[0]

    def unfinished(self) -> RunFiles | None:
        """The newest run that began and has not ended."""
        return next((run for run in reversed(self.all()) if run.open()), None)

    def name(self, operation: str, target: str) -> str:
        """Make a name for a run to come."""
        return f"{self._clock.now():%Y%m%dT%H%M%SZ}-{operation.replace(' ', '-')}-{target}-{secrets.token_hex(2)}"

    def identity(self) -> str:
        """Identify this STATE, to tell its runs from others on a broker. A copy has another identity, and so has a
        shared file system on each machine."""
        path = self._state / "id"
        private(self._state)
        if not path.exists():
            fresh = path.with_name(f".id.{os.getpid()}")
            write_text(fresh, secrets.token_hex(8))
            with suppress(FileExistsError):
                os.link(fresh, path)  # of two processes that begin together, one makes the file
            fresh.unlink()
        return "-".join(filter(None, (path.read_text("utf-8"), f"{path.stat().st_ino:x}", machine_id())))

    def known_identity(self) -> str:
        """Like `identity`, without writing; "" where this STATE has never begun a run."""
        return self.identity() if (self._state / "id").exists() else ""

    def create(self, operation: str, target: str, name: str | None = None) -> RunFiles:
        name = name or self.name(operation, target)
        folder = self._state / "runs" / name
        for directory in (self._state, folder.parent, folder):
            private(directory)
            sync_folder(directory.parent)
        return RunFiles(name, folder)

    def own(self) -> None:
        """Write down the owner of this STATE before anything else is written there. Raises `NoRoom`."""
        path = self._state / _OWNER
        if self._owner is not None and Owner.read(path) != self._owner:
            private(self._state)
            with refusing_where_full(self._state):
                write(path, self._owner.as_json())

    def _must_be_of(self, owner: Owner) -> None:
        recorded = Owner.read(self._state / _OWNER)
        if recorded is not None and not recorded.is_same(owner):
            text = f"the runs in {self._state} are of {recorded.name}, whose brokers are not those of {owner.name}"
            moved = f"Where its name and all its addresses have changed since: remove {self._state / _OWNER}."
            raise Foreign(text, remedy=f"{Foreign.remedy} {moved}")

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Hold this STATE for one run; raises `Locked` saying who holds it. Ends with the process, however it ends."""
        private(self._state)
        self.own()
        file = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Locked(f"another run is under way: {_holder(file)}") from error
            holder = {"what": what, "pid": os.getpid(), "host": socket.gethostname(), "since": stamp(self._clock.now())}
            os.ftruncate(file, 0)
            with refusing_where_full(self._state):
                os.pwrite(file, json.dumps(holder).encode(), 0)
            yield
        finally:
            os.close(file)


def _holder(file: int) -> str:
    try:
        holder: dict[str, Any] = json.loads(os.pread(file, 4096, 0))
        return f"{holder['what']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):
        return "its name could not be read"
