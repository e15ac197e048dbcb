"""The debts of runs, and the files for the agent of `dr-ctl sync`: both are stored in STATE, beside the runs.

A run may leave a debt until it is done: a fence that could not be proven, a quarantine that must be lifted. The brokers
of one site store a debt as a document, so any host sees it; STATE has a copy for the time when that site is silent.

The agent and people exchange files. `sync.json` has the state of the agent. `sync-hold.json` keeps the agent from
deleting until it is removed. `sync-go-on.json` says that a person permits to count vanished messages as consumed; the
agent removes that file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.document import derived, document, key, of_file, read
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Json
from dr_ctl.core.system import stamp
from dr_ctl.engine.disk import locked_file, private
from dr_ctl.engine.runs import Locked, write, write_text


class DebtKind(Enum):
    FENCE = "fence"  # a lost site whose clients were not shown to be kept out
    QUARANTINE = "quarantine"  # messages that a lost site still holds are kept out until `reinstate` lets them in


@dataclass(frozen=True, slots=True)
class Debt:
    """A debt that concerns a lost site. `kept_at` is the site that holds its document.

    `lasting` says whether the protection survives a restart of the broker at `kept_at`, and a takeover there.
    """

    kind: DebtKind
    lost_site: str = field(metadata=key("site"))
    kept_at: str
    since: str
    lasting: bool = False

    @derived
    def text(self) -> str:
        if self.kind is DebtKind.FENCE:
            return f"{self.lost_site} was lost and its clients were not shown to be kept out"
        restart = f"a restart of {self.kept_at}'s broker, or a takeover there,"
        until = f"{restart} does not end that" if self.lasting else f"{restart} ends that"
        return f"what {self.lost_site} still holds is kept out of {self.kept_at}; {until}"

    @derived
    def remedy(self) -> str:
        if self.kind is DebtKind.FENCE:
            return f"`dr-ctl reinstate {self.lost_site}` once it is back: it is closed first where it came back open."
        compares = "it compares both sites, names possible duplicates, and then lets that in."
        return f"`dr-ctl reinstate {self.lost_site}` once it is back: {compares}"


def only_lost_site(debts: Iterable[Debt]) -> str | None:
    """Return the lost site that is not reinstated; None without a debt, or with debts of both sites, because no debt
    shows which site was lost last."""
    lost = {debt.lost_site for debt in debts}
    return lost.pop() if len(lost) == 1 else None


def known(path: Path) -> list[Debt]:
    """Read the debts in STATE. Raises EnvironmentFault."""
    try:
        return [read(Debt, row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "Look at `dr-ctl status`; then move that file away: the brokers store the same debts."
        raise EnvironmentFault(f"{path} cannot be read: {error}", remedy=remedy) from error


def remember(path: Path, debts: Iterable[Debt]) -> None:
    """Write the pending debts to STATE; the file exists only while a debt is pending."""
    if rows := document([*debts]):
        private(path.parent)
        write_text(path, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    elif path.exists():  # a read-only disk refuses to remove even an absent file
        path.unlink(missing_ok=True)


def merged(remembered: Iterable[Debt], snapshot: Iterable[Debt], answered: Iterable[str]) -> list[Debt]:
    """Join the debts seen at the brokers with the remembered debts of sites that did not answer."""
    sites = set(answered)
    away = [debt for debt in remembered if debt.kept_at not in sites]
    merged = {(debt.kind, debt.lost_site, debt.kept_at): debt for debt in [*away, *snapshot]}
    return sorted(merged.values(), key=lambda debt: (debt.kept_at, debt.lost_site, debt.kind.value))


BY_AGENT: Final = "the agent itself"
HOLD: Final = "sync-hold.json"
GO_ON: Final = "sync-go-on.json"


@dataclass(frozen=True, slots=True)
class Hold:
    """A document that keeps the agent from deleting, with its author and reason."""

    by: str
    reason: str
    since: str

    @property
    def text(self) -> str:
        return f"{self.by}, since {self.since}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Notes:
    state: Path

    @property
    def standing(self) -> Path:
        return self.state / "sync.json"

    def hold(self) -> Hold | None:
        """Read the hold, if any; an unreadable one counts."""
        try:
            return read(Hold, json.loads((self.state / HOLD).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return Hold("somebody", f"{self.state / HOLD} cannot be read: {error}", "?")

    def put_hold(self, hold: Hold) -> None:
        private(self.state)
        if hold.by != BY_AGENT:
            (self.state / GO_ON).unlink(missing_ok=True)
        write(self.state / HOLD, document(hold))

    def go_on(self, at: datetime) -> None:
        """Record that a person permits to count vanished messages as consumed, and end every hold."""
        private(self.state)
        write(self.state / GO_ON, {"since": stamp(at)})
        (self.state / HOLD).unlink(missing_ok=True)

    def consume_go_on(self) -> bool:
        """Say whether a person permitted that, and remove the record and the agent's own hold."""
        if not (self.state / GO_ON).exists():
            return False
        if (hold := self.hold()) is not None and hold.by == BY_AGENT:
            (self.state / HOLD).unlink(missing_ok=True)
        (self.state / GO_ON).unlink(missing_ok=True)
        return True

    def write(self, document: Mapping[str, Json]) -> None:
        write(self.standing, document)

    def read(self) -> Mapping[str, Any]:
        """Read the state of the last agent; empty where there was no agent."""
        return of_file(self.standing) or {}

    @contextmanager
    def only_agent(self) -> Iterator[None]:
        """Be the only agent of this STATE until the block or the process ends; raises `Locked`."""
        private(self.state)
        with locked_file(self.state / "sync.lock") as file:
            if file is None:
                document = self.read()
                text = f"an agent runs already: process {document.get('pid', '?')} on {document.get('host', '?')}"
                raise Locked(text, remedy=f"{self.standing} has its state.")
            yield
