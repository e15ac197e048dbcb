"""Messages between the agent of `dr-ctl sync` and people, as documents in STATE, each whole or absent.

`sync.json` is how the agent stands. `sync-hold.json` keeps it from deleting until it is removed. `sync-go-on.json` says
that somebody answers for the vanished messages; the agent removes that document.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.document import of_file
from dr_ctl.core.model import Json
from dr_ctl.core.system import stamp
from dr_ctl.engine.disk import private
from dr_ctl.engine.runs import Locked, write

BY_AGENT: Final = "the agent itself"


@dataclass(frozen=True, slots=True)
class Hold:
    """A document that keeps the agent from deleting: by whom, and why."""

    by: str
    reason: str
    since: str

    @property
    def text(self) -> str:
        return f"{self.by}, since {self.since}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Notes:
    """The documents in one STATE."""

    state: Path

    @property
    def standing(self) -> Path:
        return self.state / "sync.json"

    @property
    def _hold(self) -> Path:
        return self.state / "sync-hold.json"

    @property
    def _go_on(self) -> Path:
        return self.state / "sync-go-on.json"

    @property
    def _lock(self) -> Path:
        return self.state / "sync.lock"

    def hold(self) -> Hold | None:
        """A hold that cannot be read holds all the same."""
        try:
            document = json.loads(self._hold.read_text(encoding="utf-8"))
            return Hold(str(document["by"]), str(document["reason"]), str(document["since"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            return Hold("somebody", f"{self._hold} cannot be read: {error}", "?")

    def put_hold(self, by: str, reason: str, at: datetime) -> None:
        private(self.state)
        if by != BY_AGENT:
            self._go_on.unlink(missing_ok=True)
        write(self._hold, {"by": by, "reason": reason, "since": stamp(at)})

    def tell_more(self, hold: Hold, reason: str) -> None:
        """Give a hold that stands a better reason."""
        write(self._hold, {"by": hold.by, "reason": reason, "since": hold.since})

    def go_on(self, at: datetime) -> None:
        """Note that a person answers for the vanished messages, and end every hold."""
        private(self.state)
        write(self._go_on, {"since": stamp(at)})
        self._hold.unlink(missing_ok=True)

    def take_go_on(self) -> bool:
        """Say whether somebody said so, once. The agent's own hold goes with it, also one of the same moment."""
        if not self._go_on.exists():
            return False
        if (hold := self.hold()) is not None and hold.by == BY_AGENT:
            self._hold.unlink(missing_ok=True)
        self._go_on.unlink(missing_ok=True)
        return True

    def write(self, document: Mapping[str, Json]) -> None:
        write(self.standing, document)

    def read(self) -> Mapping[str, Any]:
        """How the last agent stood; empty where there was none."""
        return of_file(self.standing) or {}

    @contextmanager
    def only_agent(self) -> Iterator[None]:
        """Be the only agent of this STATE until the block or the process ends; raises `Locked`."""
        private(self.state)
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(file)
            yield
        finally:
            os.close(file)

    def _take(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            document = self.read()
            text = f"an agent runs already: process {document.get('pid', '?')} on {document.get('host', '?')}"
            raise Locked(text, remedy=f"{self.standing} says how it stands.") from error
