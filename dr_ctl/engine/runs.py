"""The runs of one installation under STATE: the owner, the directories, and the lock for one run at a time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.document import document, read
from dr_ctl.core.errors import DrCtlError, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.machine import machine_id
from dr_ctl.core.model import ExitCode, Finding, Json, Severity
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.disk import RESERVE, locked_file, private, refusing, sync_folder, written_whole

_OWNER: Final = "installation.json"
DEBTS: Final = "debts.json"  # the file exists only while a debt is pending
_READABLE: Final = 40  # characters of an installation's name
_DIGITS: Final = 12


class Locked(DrCtlError):
    exit_code = ExitCode.LOCKED
    remedy = "Wait for it to end, or look at it: `dr-ctl status`."


class Foreign(UsageError):
    remedy = "Give each installation its own directory: leave --state-dir out, or name another one."


@dataclass(frozen=True, slots=True)
class Owner:
    """The installation that owns the runs, with the addresses of its brokers by site and pair. The addresses identify
    the installation, because people edit the names of installations, sites and pairs."""

    name: str
    brokers: Mapping[str, Mapping[str, Sequence[str]]]

    @property
    def folder(self) -> str:
        readable = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:_READABLE]
        digest = hashlib.sha256(repr(sorted(self._addresses)).encode()).hexdigest()
        return "-".join(filter(None, (readable, digest[:_DIGITS])))

    @property
    def _by_name(self) -> dict[str, list[str]]:
        """The normalized addresses by SITE/PAIR."""
        return {
            f"{site}/{pair}": [address.partition("://")[2].lower().rstrip("/") or address for address in addresses]
            for site, pairs in self.brokers.items()
            for pair, addresses in pairs.items()
        }

    @property
    def _addresses(self) -> set[str]:
        return {address for addresses in self._by_name.values() for address in addresses}

    def count_common(self, other: Owner) -> int:
        return len(self._addresses & other._addresses)

    def is_same(self, other: Owner) -> bool:
        """Say whether both may be one installation; a common name is enough, because every address may have changed."""
        return self.count_common(other) > 0 or self.name == other.name

    def folder_in(self, root: Path) -> tuple[Path, Sequence[Path]]:
        """Return the installation's folder below `root`: that of the owner with most common addresses, or a new folder
        and the folders of namesakes, which have the same name and no common broker. Raises `Foreign` if several owners
        have equally many."""
        own = root / self.folder
        others = {path.parent: owner for path in sorted(root.glob(f"*/{_OWNER}")) if (owner := _readable(path))}
        common = {path: count for path, owner in others.items() if (count := self.count_common(owner))}
        best = [path for path, count in common.items() if count == max(common.values())]
        if own in best or not best:
            return own, () if best else [path for path, owner in others.items() if owner.name == self.name]
        if len(best) > 1:
            places = " or in ".join(map(str, best))
            text = f"the runs of {self.name} may be in {places}: each has as many of its brokers"
            raise Foreign(text, remedy=f"Name one of them once, as in `--state-dir {best[0]}`: dr-ctl records it.")
        return best[0], ()

    def former_names(self, recorded: Owner) -> dict[str, str]:
        """Return the former name of each broker that has another name in `recorded`, by SITE/PAIR."""
        before = {address: name for name, addresses in recorded._by_name.items() for address in addresses}
        known = {
            name: next((before[address] for address in addresses if address in before), name)
            for name, addresses in self._by_name.items()
        }
        return {name: former for name, former in known.items() if former != name}

    @classmethod
    def read(cls, path: Path) -> Owner | None:
        """Read the owner; returns None without a file. Raises `Foreign` for an unreadable file."""
        try:
            return read(cls, json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            text = f"the owner of the runs in {path.parent} cannot be read: {type(error).__name__}: {error}"
            raise Foreign(text, remedy=f"Look at `dr-ctl runs list`; then fix or remove {path}.") from error


def _readable(path: Path) -> Owner | None:
    with suppress(Foreign):
        return Owner.read(path)
    return None


def unclaimed(namesakes: Iterable[Path]) -> list[Finding]:
    """Report runs of namesakes, which may be this installation's; as an error if a run is open, or a debt pending."""
    findings = []
    for place in namesakes:
        runs = Runs(place)
        open_, has_debts = runs.unfinished(), (place / DEBTS).exists()
        if not runs.all() and not has_debts:
            continue
        what = f"the open run {open_.name}" if open_ is not None else f"{len(runs.all())} run(s)"
        accepted, what = open_ is None and not has_debts, f"{what}{' and debts' if has_debts else ''}"
        findings.append(found("DR-STATE-001", place=place, what=what, accepted=accepted))
    return findings


@dataclass
class RunFiles:
    name: str
    folder: Path

    def __post_init__(self) -> None:
        self.plan, self.journal = self.folder / "plan.json", self.folder / "journal.jsonl"
        self.result, self.report = self.folder / "result.json", self.folder / "report.html"
        self.reserve = self.folder / RESERVE

    def open(self) -> bool:
        """Say whether the run began and has not ended."""
        return self.journal.exists() and not self.result.exists()

    def begin(self, plan: Mapping[str, Json]) -> None:
        """Write the plan, before anything is done; raises `CannotWrite`."""
        with refusing(self.folder):
            write(self.plan, plan)


def write(path: Path, document: Mapping[str, Json]) -> None:
    write_text(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    with written_whole(path, 0o600) as file:
        file.write(content)


class Runs:
    def __init__(
        self, state: Path, owner: Owner | None = None, *, claimed: bool = False, namesakes: Sequence[Path] = ()
    ) -> None:
        """Runs without an owner are only read. `claimed`: a person named this directory. Raises `Foreign`."""
        self._state, self._owner, self._namesakes = state, owner, namesakes
        self.documents = state / "documents"  # for brokers that cannot store any
        self.rehearsals = state / "rehearsals"  # the evidence of rehearsals on simulated brokers
        self.index = state / "index.html"
        if owner is not None and (recorded := Owner.read(state / _OWNER)) is not None:
            if not recorded.is_same(owner):
                text = f"the runs in {state} are of {recorded.name}, whose brokers are not those of {owner.name}"
                moved = f"If its name and all its addresses have changed since, remove {state / _OWNER}."
                raise Foreign(text, remedy=f"{Foreign.remedy} {moved}")
            if recorded != owner and (claimed or recorded.count_common(owner)):
                with self._lock_file() as file:
                    if file is not None:
                        self.record_owner()

    def all(self) -> list[RunFiles]:
        """List the runs, the oldest first; a name has only the second in which its run began."""
        folder = self._state / "runs"
        runs = [RunFiles(path.name, path) for path in folder.iterdir()] if folder.is_dir() else []
        written_ns = defaultdict[str, int](int)
        for run in runs:
            with suppress(OSError):
                written_ns[run.name] = run.plan.stat().st_mtime_ns
        return sorted(runs, key=lambda run: (run.name.partition("-")[0], written_ns[run.name], run.name))

    def find(self, name: str | None) -> RunFiles:
        """Find a run by its name or a unique beginning of the name, or the last run; raises `UsageError`."""
        runs = self.all()
        if name is None:
            if not runs:
                remedy = "`dr-ctl plan swapover --to SITE` shows what one would do."
                raise UsageError("there is no run yet", remedy=remedy)
            return runs[-1]
        matching = [run for run in runs if run.name.startswith(name)]
        if len(matching) != 1:
            what = "no run" if not matching else f"{len(matching)} runs"
            raise UsageError(f"{what} with the name {name}", remedy="`dr-ctl runs list` shows them.")
        return matching[0]

    def unfinished(self) -> RunFiles | None:
        return next((run for run in reversed(self.all()) if run.open()), None)

    def name(self, operation: str, target: str) -> str:
        return f"{system().now():%Y%m%dT%H%M%SZ}-{operation.replace(' ', '-')}-{target}-{secrets.token_hex(2)}"

    def identity(self) -> str:
        """Return an id that differs for copies of this STATE, and on other machines with the same file system."""
        path = self._state / "id"
        with refusing(self._state):
            private(self._state)
            if not path.exists():
                fresh = path.with_name(f".id.{os.getpid()}")
                write_text(fresh, secrets.token_hex(8))
                with suppress(FileExistsError):
                    os.link(fresh, path)  # another process may create it at the same time
                fresh.unlink()
        return "-".join(filter(None, (path.read_text("utf-8"), f"{path.stat().st_ino:x}", machine_id())))

    def known_identity(self) -> str:
        """Return the `identity` without writing; "" if this STATE has never begun a run."""
        return self.identity() if (self._state / "id").exists() else ""

    def unwritable(self) -> str | None:
        """Say why no run can begin here, as far as that shows without writing."""
        existing = next(folder for folder in (self._state, *self._state.parents) if os.path.lexists(folder))
        writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
        return None if writable else f"{existing} cannot be written"

    def create(self, operation: str, target: str, name: str | None = None) -> RunFiles:
        name = name or self.name(operation, target)
        folder = self._state / "runs" / name
        with refusing(folder):
            for directory in (self._state, folder.parent, folder):
                private(directory)
                sync_folder(directory.parent)
        return RunFiles(name, folder)

    def record_owner(self) -> None:
        """Record the owner, and move the documents of renamed brokers. Raises `CannotWrite`."""
        path, owner = self._state / _OWNER, self._owner
        if owner is None or (recorded := Owner.read(path)) == owner:
            return
        with refusing(self._state):
            private(self._state)
            if recorded is not None:
                self._rename_documents(owner.former_names(recorded))
            write(path, document(owner))

    def _rename_documents(self, former_names: Mapping[str, str]) -> None:
        """Rename in two passes, so that two brokers may exchange their names; continue an interrupted pass."""
        moving = {self.documents / name: self.documents / f"{name}.moving" for name in former_names}
        for now, former in former_names.items():
            if (old := self.documents / former).is_dir():
                old.rename(moving[self.documents / now])
        for folder, temporary in moving.items():
            if temporary.is_dir():
                if folder.is_dir():  # of a broker that is not in the settings any more
                    folder.rename(folder.with_name(f"{folder.name}.{secrets.token_hex(4)}"))
                private(folder.parent)
                temporary.rename(folder)

    @contextmanager
    def lock(self, what: str, *, held: bool = False) -> Iterator[None]:
        """Lock this STATE for one run, until the block or the process ends; raises `Locked` with the present holder. A
        caller with `held` has the lock already, or needs none, as in a dry run."""
        if held:
            yield
            return
        with self._lock_file() as file:
            if file is None:
                raise Locked(f"another run is under way: {_holder(self._state / 'lock')}")
            for finding in unclaimed(self._namesakes):
                if finding.severity is Severity.ERROR:
                    raise Foreign(finding.text, remedy=finding.remedy)
            self.record_owner()
            holder = {"what": what, "pid": os.getpid(), "host": socket.gethostname(), "since": stamp(system().now())}
            with refusing(self._state):
                os.ftruncate(file, 0)
                os.pwrite(file, json.dumps(holder).encode(), 0)
            yield

    @contextmanager
    def _lock_file(self) -> Iterator[int | None]:
        """Lock the file for this block; yield None while another process holds the lock. Raises `CannotWrite`."""
        with ExitStack() as stack:
            with refusing(self._state):
                private(self._state)
                file = stack.enter_context(locked_file(self._state / "lock"))
            yield file


def _holder(file: Path) -> str:
    try:
        holder: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return f"{holder['what']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "its name could not be read"
