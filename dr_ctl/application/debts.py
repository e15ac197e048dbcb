"""Debts for every command that looks: read from the brokers that answered, and from STATE for the silent ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dr_ctl.application.caller import Caller
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.engine.debts import Debt, known, merged, remember
from dr_ctl.engine.runs import DEBTS
from dr_ctl.topologies.topology import Snapshot


@dataclass(frozen=True, slots=True)
class Owed:
    """The debts; `findings` say where STATE could not be asked or told."""

    debts: Sequence[Debt]
    findings: tuple[Finding, ...] = ()


def owed(state: Path, snapshot: Sequence[Debt], answered: Sequence[str]) -> Owed:
    """Join both and write the result to STATE, for the time when a broker with a debt is away. An unreadable STATE ends
    no command: the brokers hold the same debts."""
    path = state / DEBTS
    try:
        debts = merged(known(path), snapshot, answered)
        remember(path, debts)
    except (EnvironmentFault, OSError) as error:
        finding = found("DR-DEBT-001", error=error, path=path)
        return Owed(merged((), snapshot, answered), (finding,))
    return Owed(debts)


def owed_now(caller: Caller, snapshot: Snapshot) -> Owed:
    return owed(caller.state(), snapshot.debts, sorted({each.site for each in snapshot.brokers if each.silent is None}))
