"""Declares `rpo`: the estimate from recorded history, its backtest, and ledgers."""

from pathlib import Path
from typing import Annotated

from dr_ctl import cli
from dr_ctl.application.result import Result
from dr_ctl.cli.command import command, group
from dr_ctl.cli.options import argument, option
from dr_ctl.cli.session import Session

rpo_app = group("rpo", "The estimate of what a failure would lose, from recorded history.")

OF_SITE = Annotated[str | None, option("--site SITE", "Default: the one serving at the end.")]
SINCE = Annotated[str | None, option("--since T", "A moment, or a duration back: 2h.")]
UNTIL = Annotated[str | None, option("--until T", "In the same form as --since; default: the end.")]


@command(rpo_app, "estimate", example="rpo estimate --since 7d --report estimate.html")
def rpo_estimate(
    session: Session,
    *,
    site: OF_SITE = None,
    since: SINCE = None,
    until: UNTIL = None,
    horizon: Annotated[str, option("--horizon T", "How far the forecast goes.")] = "5m",
    full: Annotated[bool, option("--full", "Read all rows, not the summaries of hours that are over.")] = False,
    report: Annotated[Path | None, option("--report FILE", "Write a page with charts too.")] = None,
) -> Result:
    """How many messages, and how many seconds of them, a failure would lose. Contacts no broker."""
    return cli.rpo.estimate(session, cli.rpo.asked_of(session, site, since, until), horizon, report, full=full)


@command(rpo_app, "backtest", example="rpo backtest --since 30d --horizon 5m")
def rpo_backtest(
    session: Session,
    *,
    site: OF_SITE = None,
    since: SINCE = None,
    until: UNTIL = None,
    horizon: Annotated[list[str] | None, option("--horizon T", "Ahead by this, each; default 1m 5m 15m.")] = None,
) -> Result:
    """Compare the estimates that past moments would have given with the truth. Contacts no broker."""
    return cli.rpo.backtest(session, cli.rpo.asked_of(session, site, since, until), horizon)


@command(rpo_app, "reconcile", example="rpo reconcile london.jsonl paris.jsonl --out ids")
def rpo_reconcile(
    session: Session,
    *,
    ledgers: Annotated[list[str], argument("[SITE=]LEDGER[@MOMENT]...")],
    out: Annotated[Path | None, option("--out DIR", "Where the files of ids go.")] = None,
    property_name: Annotated[str | None, option("--id PROPERTY", "What identifies an exported message.")] = None,
) -> Result:
    """Count lost, doubled, recovered, unexpected and unknown messages from ledgers of message ids (Parquet, JSON
    lines), exports of `artemis data exp` (SITE=FILE@MOMENT) and browse snapshots (SITE=FILE). Contacts no broker."""
    return cli.rpo.reconcile(session, ledgers, out, property_name)
