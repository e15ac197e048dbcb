"""`rpo reconcile`: what ledgers of message ids say was lost, doubled, recovered, unexpected or unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dr_ctl.application.findings import UNEXPECTED_MESSAGES
from dr_ctl.application.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.model import ExitCode, Finding
from dr_ctl.core.printable import page
from dr_ctl.rpo.ledgers.reconcile import Reconciled
from dr_ctl.rpo.ledgers.reconcile import reconcile as make
from dr_ctl.rpo.ledgers.transforms import KINDS
from dr_ctl.settings.model import SparkSettings


def reconcile(session: Session, told: list[str], out: Path | None, property_name: str | None) -> Result:
    spark = _spark(session)
    place = out or session.state() / "reconcile" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    found = make(told, place, property_name=property_name, master=spark.master, conf=spark.conf)
    data: Any = found.as_json()
    return Result(_code(found), _summary(found), [*found.findings, *_doubts(found)], data, text=_table(found))


def _spark(session: Session) -> SparkSettings:
    """What the settings say of Spark; ledgers can be reconciled without any settings."""
    return session.installation().settings.spark if session.has_settings() else SparkSettings()


def _code(found: Reconciled) -> ExitCode:
    if not found.is_clean:
        return ExitCode.LOSS_REFUSED
    return ExitCode.UNKNOWN if found.parts["unknown"].count else ExitCode.OK


def _summary(found: Reconciled) -> str:
    if not found.events:
        return "the ledgers tell of no message"
    told = [f"{found.parts[kind].count} {kind}" for kind in KINDS if found.parts[kind].count]
    return ", ".join(told) or "nothing lost, nothing doubled"


def _doubts(found: Reconciled) -> list[Finding]:
    count = found.parts["unexpected"].count
    if not count:
        return []
    text = f"{count} message(s) came that no producer's ledger knows"
    return [UNEXPECTED_MESSAGES(text, f"Their ids are in {found.parts['unexpected'].file}.")]


def _table(found: Reconciled) -> str:
    lines = [f"{kind:<12}{found.parts[kind].count:>12}  {found.parts[kind].file}" for kind in KINDS]
    for kind in KINDS:
        lines += [f"  {kind} of {queue}: {count}" for queue, count in found.parts[kind].queues.items()]
    events = ", ".join(f"{count} {event}" for event, count in sorted(found.events.items())) or "none"
    how = (
        f"{found.differing} of {found.buckets} buckets did not add up"
        if found.buckets
        else "each message was looked at"
    )
    return page([*lines, f"events: {events}; {how}"])
