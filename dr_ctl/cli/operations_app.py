"""Declares `plan` and the commands that may change a broker; `application` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dr_ctl.cli.command import Option, command, group

if TYPE_CHECKING:
    from dr_ctl.application.result import Result
    from dr_ctl.application.run_options import RunOptions
    from dr_ctl.cli.session import Session
    from dr_ctl.engine.plan import Ask

operations_app = typer.Typer(rich_markup_mode=None)
link_app = group("The link between the sites: restart it.")

_REQUIRED = ...


def _option(name: str, metavar: str, text: str) -> Option:
    """An optional text."""
    kind = Annotated[str | None, typer.Option(f"--{name}", metavar=metavar, help=text)]
    return name.replace("-", "_"), kind, None


def _flag(name: str, text: str) -> Option:
    return name.replace("-", "_"), Annotated[bool, typer.Option(f"--{name}", help=text)], False


# Options that become one `Ask`.
_TO = Annotated[str, typer.Option("--to", metavar="SITE", help="The site that shall serve.")]
_LOST = Annotated[str, typer.Argument(metavar="SITE", help="The lost site that is back.")]
_TIMEOUT = Annotated[str | None, typer.Option("--timeout", metavar="T", help="Of the drain, as in 30s or 5m.")]
_LOSS = Annotated[
    str | None, typer.Option("--accept-loss", metavar="N|unknown", help="Messages that a failover may lose.")
]
_TWICE = Annotated[
    str | None, typer.Option("--accept-twice", metavar="N|unknown", help="Messages that may come twice by a failover.")
]
_ACCEPT = Annotated[
    list[str] | None, typer.Option("--accept-difference", metavar="QUEUE=N", help="Move with exactly this difference.")
]
TO: Option = ("to", _TO, _REQUIRED)
SITE: Option = ("site", Annotated[str, typer.Argument(metavar="SITE")], _REQUIRED)
LOST_SITE: Option = ("site", _LOST, _REQUIRED)
TIMEOUT: Option = ("timeout", _TIMEOUT, None)
OUTAGE = _option("max-outage", "T", "Undo when clients would be out longer; default: objectives.")
CUT = _flag("cut-in-flight", "Move although clients hold messages: they come again.")
ACCEPT: Option = ("accept_difference", _ACCEPT, None)
LOSS: Option = ("accept_loss", _LOSS, None)
TWICE: Option = ("accept_twice", _TWICE, None)
PRESUME = _option("presume-down", "SITE", "Take this site for down; needs --reason.")
SILENT = _option(
    "silent-since",
    "T",
    "When the lost site's service ended, a moment or a time ago: bounds the loss; needs --reason.",
)
QUEUES = _option(
    "queues",
    "PATTERN",
    "Only these queues: a name, or a pattern as in Artemis (`orders.#`); where the topology moves queues one by one.",
)
MOVE = (TO, TIMEOUT, OUTAGE, CUT, ACCEPT, QUEUES)
STEP = (SITE, TIMEOUT, QUEUES)
# Options that become one `RunOptions`.
EXPECT = _option("expect-serving", "SITE", "Refuse unless SITE serves.")
REASON = _option("reason", "TEXT", "Why; the journal keeps it.")
CHANGES = (
    _flag("yes", "Ask nothing."),
    _flag("dry-run", "Show the very plan that a run would execute; change nothing."),
    _flag("steal", "Take over the live lock of another run; needs --reason."),
    REASON,
    EXPECT,
)
STEPWISE = (*CHANGES, _flag("step", "Ask before each step; a no offers undo, or stopping here."))
_PLAN = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Carry out this saved plan, or refuse: what changed?")
]
WHOLE = (*STEPWISE, ("saved", _PLAN, None))


_EITHER: Option = ("to", Annotated[str | None, typer.Option("--to", metavar="SITE", help="The same.")], None)


@command(operations_app, "plan", asks=(_EITHER, *MOVE[1:], EXPECT, LOSS, TWICE, PRESUME, SILENT, REASON))
def plan(
    session: Session,
    asked: Ask,
    *,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="swapover, failover, failback, reinstate")],
    site: Annotated[str | None, typer.Argument(metavar="[SITE]", help="The site to serve, or to take in.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan as JSON.")] = None,
) -> Result:
    """Show the plan of an operation: steps, exact calls, what is undone if it fails."""
    from dr_ctl.application import estimates, plans, run  # noqa: PLC0415

    del operation, site  # `asked` has both
    planned = run.plan(session, asked)
    if out is not None and planned.plan is not None:
        plans.save(planned.plan, out)
    return estimates.beside_plan(session.installation(), planned)


def _operation(name: str, about: str, asks: Sequence[Option], how: Sequence[Option] = CHANGES) -> None:
    """Declare an operation. Of a name of two words the first is its group."""

    def run_it(session: Session, asked: Ask, how: RunOptions) -> Result:
        from dr_ctl.application import run  # noqa: PLC0415

        return run.run(session, asked, how)

    run_it.__doc__ = about
    app = link_app if " " in name else operations_app
    command(app, name.rsplit(maxsplit=1)[-1], full=name, asks=asks, how=how)(run_it)


_operation(
    "swapover", "Move the service, or some queues of it, to the other site: nothing lost, nothing twice.", MOVE, WHOLE
)
_operation(
    "failover",
    "The serving site is lost: serve at the other now, and say what is lost.",
    (TO, TIMEOUT, LOSS, TWICE, PRESUME, SILENT),
    WHOLE,
)
_operation("reinstate", "Take a lost site in again, without the move back.", (LOST_SITE, TIMEOUT), WHOLE)
_operation(
    "failback",
    "The lost site is back: take it in (as `reinstate`), ask, then move the service back to it (as `swapover`).",
    MOVE,
    WHOLE,
)
_operation("quiesce", "One step: let the clients of a site finish what they hold. `release` undoes it.", STEP)
_operation(
    "fence",
    "One step: keep clients out of a site, proven; a silent one is cut off by a hook. `release` undoes it.",
    STEP,
)
_operation(
    "drain",
    "One step: wait until both sites hold the same, and write the receipt. The other site must be fenced.",
    (TO, TIMEOUT, ACCEPT, QUEUES),
)


@command(operations_app, "verify", asks=(TO, TIMEOUT, ACCEPT, QUEUES))
def verify(session: Session, asked: Ask) -> Result:
    """Whether the gate holds now: 0, 10 with what keeps it shut, 22 where a site does not answer. Only looks."""
    from dr_ctl.application import readiness  # noqa: PLC0415

    return readiness.verify(session, asked)


_operation(
    "activate",
    "One step: make a site serve, proven. Needs the receipt of a drain, or outflows that are read as empty.",
    STEP,
)
_operation("release", "One step: undo a fence where nothing has moved since, and lift what runs have paused.", STEP)
_operation(
    "link restart",
    "One step: stop and start the link of a site's brokers, and see that it attaches. Clients stay where they are.",
    (SITE, TIMEOUT),
)


_operation(
    "trim",
    "Remove from a waiting site the copies of what both sites have processed; say --dry-run first.",
    STEP,
)


@command(operations_app, "resume", how=STEPWISE)
def resume(session: Session, how: RunOptions, *, timeout: _TIMEOUT = None) -> Result:
    """Go on with the run that was interrupted."""
    from dr_ctl.application import run  # noqa: PLC0415
    from dr_ctl.cli import asking  # noqa: PLC0415

    return run.resume(session, asking.seconds_of("--timeout", timeout), how)


@command(operations_app, "abort", how=CHANGES)
def abort(
    session: Session,
    how: RunOptions,
    *,
    forget: Annotated[
        str | None,
        typer.Option("--forget", metavar="RUN", help="Give RUN up as it is, unread and not undone; needs --reason."),
    ] = None,
) -> Result:
    """Undo the run that was interrupted, where it has not passed the point of no return."""
    from dr_ctl.application import abort as undoing  # noqa: PLC0415

    return undoing.forget(session, forget, how) if forget is not None else undoing.abort(session, how)


@command(operations_app, "escalate", how=STEPWISE)
def escalate(
    session: Session,
    how: RunOptions,
    *,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The open run, or its beginning.")] = None,
    timeout: _TIMEOUT = None,
    accept_loss: _LOSS = None,
    accept_twice: _TWICE = None,
) -> Result:
    """Turn an interrupted swapover that cannot finish into a failover; the price is shown first."""
    from dr_ctl.application import run as running  # noqa: PLC0415
    from dr_ctl.cli import asking  # noqa: PLC0415

    lost, twice = asking.accepted("--accept-loss", accept_loss), asking.accepted("--accept-twice", accept_twice)
    return running.escalate(session, run, asking.seconds_of("--timeout", timeout), lost, twice, how)
