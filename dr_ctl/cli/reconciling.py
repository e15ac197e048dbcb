"""`rpo reconcile`: lost, doubled, recovered, unexpected and unknown messages, by ledgers of message ids."""

from pathlib import Path

from dr_ctl.application.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding
from dr_ctl.core.notation import page
from dr_ctl.core.system import system
from dr_ctl.rpo.ledgers.reconcile import reconcile as make
from dr_ctl.rpo.ledgers.result import KINDS, Reconciled
from dr_ctl.settings.model import SparkSettings


def reconcile(session: Session, ledgers: list[str], out: Path | None, property_name: str | None) -> Result:
    spark = _spark(session)
    place = out or session.state() / "reconcile" / f"{system().now():%Y%m%dT%H%M%SZ}"
    result = make(ledgers, place, property_name=property_name, master=spark.master, conf=spark.conf)
    data = document(result)
    return Result(_code(result), _summary(result), [*result.findings, *_doubts(result)], data, text=_table(result))


def _spark(session: Session) -> SparkSettings:
    """The settings for Spark; ledgers can be reconciled without any settings."""
    return session.installation().settings.spark if session.has_settings() else SparkSettings()


def _code(result: Reconciled) -> ExitCode:
    if not result.is_clean:
        return ExitCode.LOSS_REFUSED
    return ExitCode.UNKNOWN if result.parts["unknown"].count else ExitCode.OK


def _summary(result: Reconciled) -> str:
    if not result.events:
        return "the ledgers tell of no message"
    counts = [f"{result.parts[kind].count} {kind}" for kind in KINDS if result.parts[kind].count]
    return ", ".join(counts) or "nothing lost, nothing doubled"


def _doubts(result: Reconciled) -> list[Finding]:
    count = result.parts["unexpected"].count
    if not count:
        return []
    return [found("DR-RPO-016", count=count, file=result.parts["unexpected"].file)]


def _table(result: Reconciled) -> str:
    lines = [f"{kind:<12}{result.parts[kind].count:>12}  {result.parts[kind].file}" for kind in KINDS]
    for kind in KINDS:
        lines += [f"  {kind} of {queue}: {count}" for queue, count in result.parts[kind].queues.items()]
    events = ", ".join(f"{count} {event}" for event, count in sorted(result.events.items())) or "none"
    return page([*lines, f"events: {events}"])
