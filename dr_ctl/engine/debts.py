"""Debts that a run leaves, until they are paid: a fence that could not be proven, a quarantine that must be lifted.

A debt stands as a document on the brokers of the site that keeps it, so any host sees it. STATE has it too, for the
time in which that site is away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from dr_ctl.core.document import derived, document, key, read
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.engine.disk import private
from dr_ctl.engine.runs import write_text


class DebtKind(Enum):
    FENCE = "fence"  # a lost site whose clients were not shown to be kept out
    QUARANTINE = "quarantine"  # messages that a lost site still holds are kept out until `reinstate` lets them in


@dataclass(frozen=True, slots=True)
class Debt:
    """One debt. `about` is the site that it concerns, `kept_at` the one that holds its document.

    `lasting` says whether what is owed survives a restart of the broker at `kept_at`.
    """

    kind: DebtKind
    about: str = field(metadata=key("site"))
    kept_at: str
    since: str
    lasting: bool = False

    @derived
    def text(self) -> str:
        if self.kind is DebtKind.FENCE:
            return f"{self.about} was lost and its clients were not shown to be kept out"
        restart = f"a restart of {self.kept_at}'s broker"
        until = f"{restart} does not end that" if self.lasting else f"{restart} ends that"
        return f"what {self.about} still holds is kept out of {self.kept_at}; {until}"

    @derived
    def remedy(self) -> str:
        if self.kind is DebtKind.FENCE:
            return f"`dr-ctl reinstate {self.about}` once it is back: it is closed first where it came back open."
        return (
            f"`dr-ctl reinstate {self.about}` once it is back: it compares both sites, names possible "
            "duplicates, and then "
            "lets that in."
        )


def lost_alone(debts: Iterable[Debt]) -> str | None:
    """The site that was lost and is not taken in again; None where nothing is owed, or where each site owes the other:
    which of them was lost last no debt tells, since one that stands already keeps its time."""
    lost = {debt.about for debt in debts}
    return lost.pop() if len(lost) == 1 else None


def known(path: Path) -> list[Debt]:
    """Read the debts that STATE remembers. Raises EnvironmentFault."""
    try:
        return [read(Debt, each) for each in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentFault(
            f"{path} cannot be read: {error}",
            remedy="Look at `dr-ctl status`; then move that file away: the brokers hold the same debts.",
        ) from error


def remember(path: Path, debts: Iterable[Debt]) -> None:
    """Write down in STATE what is owed; the file is there only while something is."""
    if rows := document([*debts]):
        private(path.parent)
        write_text(path, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    else:
        path.unlink(missing_ok=True)


def merged(remembered: Iterable[Debt], snapshot: Iterable[Debt], answered: Iterable[str]) -> list[Debt]:
    """All debts: those seen at the brokers, and those that STATE remembers of sites that did not answer."""
    sites = set(answered)
    away = [debt for debt in remembered if debt.kept_at not in sites]
    whole = {(debt.kind, debt.about, debt.kept_at): debt for debt in [*away, *snapshot]}
    return sorted(whole.values(), key=lambda debt: (debt.kept_at, debt.about, debt.kind.value))
