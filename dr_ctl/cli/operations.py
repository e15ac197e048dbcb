"""Declares `plan` and the commands that may change a broker; `application` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from dr_ctl import application
from dr_ctl.cli import options
from dr_ctl.cli.command import app, command, group
from dr_ctl.cli.options import argument, option, options_for
from dr_ctl.core.model import ExitCode

if TYPE_CHECKING:
    from dr_ctl.application.result import Result
    from dr_ctl.cli.session import Session
    from dr_ctl.engine.plan import RunOptions, Spec

link_app = group("link", "The link between the sites: restart it.")


@command(app, "plan", example="plan failover --to paris --as-if-lost london", asks=options.PLAN)
def plan(
    session: Session,
    asked: Spec,
    *,
    as_if_lost: Annotated[
        str | None,
        option(
            "--as-if-lost SITE", "The plan of a failover and its loss bound today, as if SITE was lost; never executed."
        ),
    ] = None,
    out: Annotated[Path | None, option("--out FILE", "Write the plan as JSON.")] = None,
) -> Result:
    """Show the plan of an operation: steps, exact calls, what is undone if it fails."""
    planned = application.run.plan(session, asked, as_if_lost)
    if out is not None and planned.plan is not None and planned.code is ExitCode.OK:
        application.plans.save(planned.plan, out)
    return application.estimates.add_estimate(session.installation(), planned)


@command(app, "plan approve", example="plan approve plan.json --key ~/.ssh/id_ed25519")
def plan_approve(
    session: Session,
    *,
    file: Annotated[Path, argument("FILE", "The plan that `plan --out` wrote.")],
    key: Annotated[Path | None, option("--key FILE", "Your SSH key; default: that in ~/.ssh.")] = None,
    yes: Annotated[bool, option("--yes", "Ask nothing.")] = False,
) -> Result:
    """Sign a saved plan, where the settings ask for more than one person: `approvals:`."""
    return application.plans.approve(session, file, key, yes=yes)


_ABOUT: Final = {
    "swapover": "Move the service, or some queues, to the other site, without loss or duplicates.",
    "failover": "The serving site is lost: serve at the other one now, and report the possible loss.",
    "reinstate": "Make a lost site that is back the standby again, without the move back.",
    "failback": "The lost site is back: reinstate it, ask, then move the service back to it (as `swapover`).",
    "quiesce": "One step: let the clients of a site finish what they hold. `unfence` undoes it.",
    "fence": "One step: keep clients out of a site, proven; a hook cuts off a silent one. `unfence` undoes it.",
    "drain": "One step: wait until both sites hold the same, and write the receipt. The other site must be fenced.",
    "activate": "One step: make a site serve, proven. Needs the receipt of a drain, or outflows that are read as "
    "empty.",
    "unfence": "One step: undo a fence where nothing has moved since, and lift the pauses of runs.",
    "link restart": "One step: stop and start the link of a site's brokers, and see that it attaches. Clients stay "
    "where they are.",
    "trim": "Only with artemis-bridges: remove a standby's copies of processed messages; try --dry-run first.",
}
# A row has the name, the rest of the example, and the options. The first of two words of a name is the group.
_OPERATIONS: Final = (
    ("swapover", "--to paris --max-outage 10s", options.MOVE, options.AT),
    (
        "failover",
        '--to paris --silent-since 03:02 --reason "power cut, seen on the PDU"',
        options.FAILOVER,
        options.WHOLE,
    ),
    ("reinstate", "london --dry-run", options.REINSTATE, options.WHOLE),
    ("failback", "--to london --dry-run", options.MOVE, options.AT),
    ("quiesce", "london", options.STEP, options.CHANGE),
    ("fence", "london --yes", options.STEP, options.CHANGE),
    ("drain", "--to paris --accept-difference orders.in=3", options.DRAIN, options.CHANGE),
    ("activate", "paris", options.STEP, options.CHANGE),
    ("unfence", "london", options.STEP, options.CHANGE),
    ("link restart", "london", options.LINK, options.CHANGE),
    ("trim", "paris --dry-run", options.STEP, options.CHANGE),
)


def _operation(name: str, words: str, asks: Sequence[Parameter], changes: Sequence[Parameter]) -> None:
    def run_it(session: Session, asked: Spec, how: RunOptions) -> Result:
        return application.run.run(session, asked, how)

    run_it.__doc__ = _ABOUT[name]
    parent = link_app if " " in name else app
    command(parent, name.rsplit(maxsplit=1)[-1], example=f"{name} {words}", asks=asks, changes=changes)(run_it)


for _row in _OPERATIONS:
    _operation(*_row)


@command(app, "verify", example="verify --to paris", asks=options.VERIFY)
def verify(session: Session, asked: Spec) -> Result:
    """Check whether activating `--to SITE` now would be safe: 0 yes, 10 no, 22 unknown. Changes nothing."""
    return application.readiness.verify(session, asked)


@command(app, "rehearse", example="rehearse --on canary", asks=options_for("timeout_s"), changes=options.CHANGE)
def rehearse(
    session: Session,
    asked: Spec,
    how: RunOptions,
    *,
    what: Annotated[
        Literal["clean"] | None, argument("[clean]", "Remove the queues that rehearsals left at both sites.")
    ] = None,
    on: Annotated[
        Literal["canary", "twin"],
        option("--on", "The real brokers, with a queue of dr-ctl's own; or a twin of the installation."),
    ] = "canary",
    variations: Annotated[
        int, option("--variations N", "On a twin: the number of runs, each with other faults.", min=1)
    ] = 20,
    seed: Annotated[int, option("--seed N", "On a twin: the seed of the first variation.")] = 1,
) -> Result:
    """Rehearse a move without risk: with messages of its own on the brokers, or on a twin with faults."""
    if what == "clean" or on == "canary":
        return application.rehearsing.on_brokers(session, how, clean=what == "clean", timeout_s=asked.timeout_s)
    return application.rehearsing.on_twin(session, variations=variations, seed=seed)


@command(app, "resume", example="resume --dry-run", asks=options_for("timeout_s"), changes=options.STEPWISE)
def resume(session: Session, asked: Spec, how: RunOptions) -> Result:
    """Resume the interrupted run."""
    return application.run.resume(session, asked.timeout_s, how)


@command(app, "abort", example="abort", asks=options.NO_DRAIN, changes=options.CHANGE)
def abort(
    session: Session,
    asked: Spec,
    how: RunOptions,
    *,
    forget: Annotated[
        str | None, option("--forget RUN", "Give up RUN without reading or undoing it; needs --reason.")
    ] = None,
) -> Result:
    """Undo the interrupted run, if it has not passed the point of no return."""
    del asked  # an undo drains nothing
    return application.run.forget(session, forget, how) if forget is not None else application.run.abort(session, how)


@command(
    app,
    "escalate",
    example="escalate --accept-loss 200",
    asks=options_for("timeout_s", "accept_loss", "accept_duplicates"),
    changes=options.STEPWISE,
)
def escalate(
    session: Session,
    asked: Spec,
    how: RunOptions,
    *,
    run: Annotated[str | None, argument("[RUN]", "The open run, or its beginning.")] = None,
) -> Result:
    """Turn an interrupted swapover that cannot finish into a failover; the loss bound is shown first."""
    return application.run.escalate(session, run, asked, how)
