"""The commands that may change a broker, and `plan`: declared; what they do stands in `operate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dr_ctl.cli.how import How
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Option, Session, command

operations_app = typer.Typer(rich_markup_mode=None)

TO = Annotated[str, typer.Option("--to", metavar="SITE", help="The site that shall serve.")]
YES = Annotated[bool, typer.Option("--yes", help="Ask nothing.")]
DRY_RUN = Annotated[
    bool, typer.Option("--dry-run", help="Show the very plan that a run would execute; change nothing.")
]
TIMEOUT = Annotated[str | None, typer.Option("--timeout", metavar="T", help="Of the drain, as in 30s or 5m.")]
EXPECT = Annotated[str | None, typer.Option("--expect-serving", metavar="SITE", help="Refuse unless SITE serves.")]
CUT = Annotated[bool, typer.Option("--cut-in-flight", help="Move although clients hold messages: they come again.")]
ACCEPT = Annotated[
    list[str] | None, typer.Option("--accept-difference", metavar="QUEUE=N", help="Move with exactly this difference.")
]
STEAL = Annotated[bool, typer.Option("--steal", help="Take over the live lock of another run; needs --reason.")]
WHY = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; the journal keeps it.")]
LOSS = Annotated[
    str | None, typer.Option("--accept-loss", metavar="N|unknown", help="Messages that a failover may lose.")
]
PRESUME = Annotated[
    str | None, typer.Option("--presume-down", metavar="SITE", help="Take this site for down; needs --reason.")
]
STEP = Annotated[bool, typer.Option("--step", help="Ask before each step; a no offers undo, or stopping here.")]
OUTAGE = Annotated[
    str | None,
    typer.Option("--max-outage", metavar="T", help="Undo when clients would be out longer; default: objectives."),
]
PLAN = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Carry out this saved plan, or refuse: what changed?")
]
SITE = Annotated[str, typer.Argument(metavar="SITE")]

# What becomes of these is one value, `How`.
CHANGES: tuple[Option, ...] = (
    ("yes", YES, False),
    ("dry_run", DRY_RUN, False),
    ("steal", STEAL, False),
    ("reason", WHY, None),
    ("expect_serving", EXPECT, None),
)
ASKED: Option = ("step", STEP, False)
WHOLE = (*CHANGES, ASKED, ("saved", PLAN, None))


@command(operations_app, "plan")
def plan(
    session: Session,
    *,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="swapover, failover, failback, reinstate")],
    to: TO,
    timeout: TIMEOUT = None,
    max_outage: OUTAGE = None,
    cut_in_flight: CUT = False,
    accept_difference: ACCEPT = None,
    expect_serving: EXPECT = None,
    accept_loss: LOSS = None,
    presume_down: PRESUME = None,
    reason: WHY = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan as JSON.")] = None,
) -> Result:
    """Show the plan of an operation: steps, exact calls, what is undone if it fails."""
    from dr_ctl.cli import asking, estimates, operate  # noqa: PLC0415

    asked = asking.ask(
        asking.whole(operation),
        to,
        timeout=timeout,
        cut_in_flight=cut_in_flight,
        accept_difference=accept_difference,
        expect_serving=expect_serving,
        max_outage=asking.outage_s(session, max_outage) if operation in ("swapover", "failback") else None,
    )
    planned = operate.plan(session, asking.with_price(asked, accept_loss, presume_down, reason), out)
    return estimates.beside_plan(session, planned)


@command(operations_app, "swapover", how=WHOLE)
def swapover(
    session: Session,
    how: How,
    *,
    to: TO,
    timeout: TIMEOUT = None,
    max_outage: OUTAGE = None,
    cut_in_flight: CUT = False,
    accept_difference: ACCEPT = None,
) -> Result:
    """Move the service to the other site: nothing lost, nothing twice."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.ask(
        "swapover",
        to,
        timeout=timeout,
        cut_in_flight=cut_in_flight,
        accept_difference=accept_difference,
        max_outage=asking.outage_s(session, max_outage),
    )
    return operate.run(session, asked, how)


@command(operations_app, "failover", how=WHOLE)
def failover(
    session: Session,
    how: How,
    *,
    to: TO,
    timeout: TIMEOUT = None,
    accept_loss: LOSS = None,
    presume_down: PRESUME = None,
) -> Result:
    """The serving site is lost: serve at the other now, and say what is lost."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.ask("failover", to, timeout=timeout)
    asked = asking.with_price(asked, accept_loss, presume_down, how.theft.reason)
    return operate.run(session, asked, how)


@command(operations_app, "reinstate", how=WHOLE)
def reinstate(
    session: Session,
    how: How,
    *,
    site: Annotated[str, typer.Argument(metavar="SITE", help="The lost site that is back.")],
    timeout: TIMEOUT = None,
) -> Result:
    """Take a lost site in again, without the move back."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.ask("reinstate", site, timeout=timeout)
    return operate.run(session, asked, how)


@command(operations_app, "failback", how=WHOLE)
def failback(
    session: Session,
    how: How,
    *,
    to: TO,
    timeout: TIMEOUT = None,
    max_outage: OUTAGE = None,
    cut_in_flight: CUT = False,
    accept_difference: ACCEPT = None,
) -> Result:
    """The lost site is back: take it in, then move the service back to it."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.ask(
        "failback",
        to,
        timeout=timeout,
        cut_in_flight=cut_in_flight,
        accept_difference=accept_difference,
        max_outage=asking.outage_s(session, max_outage),
    )
    return operate.run(session, asked, how)


@command(operations_app, "quiesce", how=CHANGES)
def quiesce(
    session: Session,
    how: How,
    *,
    site: SITE,
    timeout: TIMEOUT = None,
) -> Result:
    """One step: let the clients of a site finish what they hold. `release` undoes it."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.at_source(session, "quiesce", site, timeout=timeout)
    return operate.run(session, asked, how)


@command(operations_app, "fence", how=CHANGES)
def fence(
    session: Session,
    how: How,
    *,
    site: SITE,
    timeout: TIMEOUT = None,
) -> Result:
    """One step: keep clients out of a site, proven; a silent one is cut off by a hook. `release` undoes it."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.at_source(session, "fence", site, timeout=timeout)
    return operate.run(session, asked, how)


@command(operations_app, "drain", how=CHANGES)
def drain(
    session: Session,
    how: How,
    *,
    to: TO,
    timeout: TIMEOUT = None,
    accept_difference: ACCEPT = None,
) -> Result:
    """One step: wait until both sites hold the same, and write the receipt. The other site must be fenced."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.ask("drain", to, timeout=timeout, accept_difference=accept_difference)
    return operate.run(session, asked, how)


@command(operations_app, "verify")
def verify(session: Session, *, to: TO, timeout: TIMEOUT = None, accept_difference: ACCEPT = None) -> Result:
    """Whether the gate holds now: 0, 10 with what keeps it shut, 22 where a site does not answer. Only looks."""
    from dr_ctl.cli import asking, show  # noqa: PLC0415

    return show.verify(session, asking.ask("verify", to, timeout=timeout, accept_difference=accept_difference))


@command(operations_app, "activate", how=CHANGES)
def activate(
    session: Session,
    how: How,
    *,
    site: SITE,
    timeout: TIMEOUT = None,
) -> Result:
    """One step: make a site serve, proven. Needs the receipt of a drain, or outflows that are read as empty."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.ask("activate", site, timeout=timeout)
    return operate.run(session, asked, how)


@command(operations_app, "release", how=CHANGES)
def release(
    session: Session,
    how: How,
    *,
    site: SITE,
    timeout: TIMEOUT = None,
) -> Result:
    """One step: undo a fence where nothing has moved since, and lift what runs have paused."""
    from dr_ctl.cli import asking, operate  # noqa: PLC0415

    asked = asking.at_source(session, "release", site, timeout=timeout)
    return operate.run(session, asked, how)


@command(operations_app, "resume", how=(*CHANGES, ASKED))
def resume(
    session: Session,
    how: How,
    *,
    timeout: TIMEOUT = None,
) -> Result:
    """Go on with the run that was interrupted."""
    from dr_ctl.cli import operate  # noqa: PLC0415

    return operate.resume(session, timeout, how)


@command(operations_app, "abort", how=CHANGES)
def abort(session: Session, how: How) -> Result:
    """Undo the run that was interrupted, where it has not passed the point of no return."""
    from dr_ctl.cli import operate  # noqa: PLC0415

    return operate.abort(session, how)


@command(operations_app, "escalate", how=(*CHANGES, ASKED))
def escalate(
    session: Session,
    how: How,
    *,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The open run, or its beginning.")] = None,
    timeout: TIMEOUT = None,
    accept_loss: LOSS = None,
) -> Result:
    """Turn an interrupted swapover that cannot finish into a failover; its price is shown first."""
    from dr_ctl.cli import operate  # noqa: PLC0415

    return operate.escalate(session, run, timeout, accept_loss, how)
