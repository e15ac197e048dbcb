"""Declares `plan` and the commands that may change a broker; `application` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dr_ctl.cli.command import command, group
from dr_ctl.cli.completing import RUNS
from dr_ctl.cli.options import (
    AS_IF_LOST,
    DUPLICATES,
    LOSS,
    TIMEOUT,
    AskOptions,
    ChangeOptions,
    DrainOptions,
    FailoverOptions,
    LostSiteOptions,
    MoveOptions,
    PlanOptions,
    SiteOptions,
    StepOptions,
    StepwiseOptions,
    WholeOptions,
)

if TYPE_CHECKING:
    from dr_ctl.application.result import Result
    from dr_ctl.application.run_options import RunOptions
    from dr_ctl.cli.session import Session
    from dr_ctl.engine.plan import Ask

operations_app = typer.Typer(rich_markup_mode=None)
link_app = group("The link between the sites: restart it.")


@command(operations_app, "plan", example="plan failover --to paris --as-if-lost london", asks=PlanOptions)
def plan(
    session: Session,
    asked: Ask,
    *,
    as_if_lost: AS_IF_LOST = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the plan as JSON.")] = None,
) -> Result:
    """Show the plan of an operation: steps, exact calls, what is undone if it fails."""
    from dr_ctl.application import estimates, plans, run  # noqa: PLC0415
    from dr_ctl.core.model import ExitCode  # noqa: PLC0415

    planned = run.plan(session, asked, as_if_lost)
    if out is not None and planned.plan is not None and planned.code is ExitCode.OK:
        plans.save(planned.plan, out)
    return estimates.beside_plan(session.installation(), planned)


@command(operations_app, "plan approve", example="plan approve plan.json --key ~/.ssh/id_ed25519")
def plan_approve(
    session: Session,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The plan that `plan --out` wrote.")],
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Your SSH key; default: that in ~/.ssh.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
) -> Result:
    """Sign a saved plan, where the settings ask for more than one person: `approvals:`."""
    from dr_ctl.application import approvals  # noqa: PLC0415

    return approvals.approve(session, file, key, yes=yes)


def _operation(
    name: str, about: str, example: str, asks: type[AskOptions], changes: type[ChangeOptions] = ChangeOptions
) -> None:
    """Declare an operation. Of a name of two words the first is its group."""

    def run_it(session: Session, asked: Ask, how: RunOptions) -> Result:
        from dr_ctl.application import run  # noqa: PLC0415

        return run.run(session, asked, how)

    run_it.__doc__ = about
    app = link_app if " " in name else operations_app
    command(app, name.rsplit(maxsplit=1)[-1], full=name, example=example, asks=asks, changes=changes)(run_it)


_operation(
    "swapover",
    "Move the service, or some queues of it, to the other site: nothing lost, nothing twice.",
    "swapover --to paris --max-outage 10s",
    MoveOptions,
    WholeOptions,
)
_operation(
    "failover",
    "The serving site is lost: serve at the other now, and say what is lost.",
    'failover --to paris --silent-since 03:02 --reason "power cut, seen on the PDU"',
    FailoverOptions,
    WholeOptions,
)
_operation(
    "reinstate",
    "Take a lost site in again, without the move back.",
    "reinstate london --dry-run",
    LostSiteOptions,
    WholeOptions,
)
_operation(
    "failback",
    "The lost site is back: take it in (as `reinstate`), ask, then move the service back to it (as `swapover`).",
    "failback --to london --dry-run",
    MoveOptions,
    WholeOptions,
)
_operation(
    "quiesce",
    "One step: let the clients of a site finish what they hold. `unfence` undoes it.",
    "quiesce london",
    StepOptions,
)
_operation(
    "fence",
    "One step: keep clients out of a site, proven; a silent one is cut off by a hook. `unfence` undoes it.",
    "fence london --yes",
    StepOptions,
)
_operation(
    "drain",
    "One step: wait until both sites hold the same, and write the receipt. The other site must be fenced.",
    "drain --to paris --accept-difference orders.in=3",
    DrainOptions,
)


@command(operations_app, "verify", example="verify --to paris", asks=DrainOptions)
def verify(session: Session, asked: Ask) -> Result:
    """Whether the gate holds now: 0, 10 with what keeps it shut, 22 where a site does not answer. Only looks."""
    from dr_ctl.application import readiness  # noqa: PLC0415

    return readiness.verify(session, asked)


_operation(
    "activate",
    "One step: make a site serve, proven. Needs the receipt of a drain, or outflows that are read as empty.",
    "activate paris",
    StepOptions,
)
_operation(
    "unfence",
    "One step: undo a fence where nothing has moved since, and lift what runs have paused.",
    "unfence london",
    StepOptions,
)
_operation(
    "link restart",
    "One step: stop and start the link of a site's brokers, and see that it attaches. Clients stay where they are.",
    "link restart london",
    SiteOptions,
)


_operation(
    "trim",
    "Remove from a waiting site the copies of what both sites have processed; say --dry-run first.",
    "trim paris --dry-run",
    StepOptions,
)


@command(operations_app, "rehearse", example="rehearse --on canary", changes=ChangeOptions)
def rehearse(
    session: Session,
    how: RunOptions,
    *,
    what: Annotated[
        Literal["clean"] | None,
        typer.Argument(metavar="[clean]", help="Remove at both sites what rehearsals have left."),
    ] = None,
    on: Annotated[
        Literal["canary", "twin"],
        typer.Option("--on", help="The real brokers, with a queue of dr-ctl's own; or a twin of the installation."),
    ] = "canary",
    variations: Annotated[
        int, typer.Option("--variations", metavar="N", min=1, help="On a twin: how many, each with other faults.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="On a twin: of the first variation.")] = 1,
) -> Result:
    """The whole path with nothing at stake: with messages of its own, or on a twin with faults."""
    from dr_ctl.application import rehearsing  # noqa: PLC0415

    if what == "clean":
        return rehearsing.clean(session, how)
    if on == "canary":
        return rehearsing.on_canary(session, how)
    return rehearsing.on_twin(session, variations=variations, seed=seed)


@command(operations_app, "resume", example="resume --dry-run", changes=StepwiseOptions)
def resume(session: Session, how: RunOptions, *, timeout: TIMEOUT = None) -> Result:
    """Go on with the run that was interrupted."""
    from dr_ctl.application import run  # noqa: PLC0415
    from dr_ctl.cli import asking  # noqa: PLC0415

    return run.resume(session, asking.seconds_of("--timeout", timeout), how)


@command(operations_app, "abort", example="abort", changes=ChangeOptions)
def abort(
    session: Session,
    how: RunOptions,
    *,
    forget: Annotated[
        str | None,
        typer.Option(
            "--forget",
            metavar="RUN",
            **RUNS,
            help="Give RUN up as it is, unread and not undone; needs --reason.",
        ),
    ] = None,
) -> Result:
    """Undo the run that was interrupted, where it has not passed the point of no return."""
    from dr_ctl.application import abort as undoing  # noqa: PLC0415

    return undoing.forget(session, forget, how) if forget is not None else undoing.abort(session, how)


@command(operations_app, "escalate", example="escalate --accept-loss 200", changes=StepwiseOptions)
def escalate(
    session: Session,
    how: RunOptions,
    *,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", **RUNS, help="The open run, or its beginning.")] = None,
    timeout: TIMEOUT = None,
    accept_loss: LOSS = None,
    accept_duplicates: DUPLICATES = None,
) -> Result:
    """Turn an interrupted swapover that cannot finish into a failover; the price is shown first."""
    from dr_ctl.application import run as running  # noqa: PLC0415
    from dr_ctl.cli import asking  # noqa: PLC0415

    lost, duplicates = (
        asking.accepted("--accept-loss", accept_loss),
        asking.accepted("--accept-duplicates", accept_duplicates),
    )
    return running.escalate(session, run, asking.seconds_of("--timeout", timeout), lost, duplicates, how)
