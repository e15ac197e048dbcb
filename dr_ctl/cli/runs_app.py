"""Declares `runs`: what past runs left, and what people do with it."""

from pathlib import Path
from typing import Annotated

from dr_ctl.application.result import Result
from dr_ctl.cli.command import command, group
from dr_ctl.cli.options import argument, option
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError

history_app = group("What runs and looks tell of the past.")
runs_app = group("Past runs: list, show, report, verify, bundle.")
RUN = Annotated[
    str | None,
    argument("[RUN]", "A run's name or its beginning; default: the last."),
]


@command(runs_app, "list", full="runs list", example="runs list --json")
def runs_list(session: Session) -> Result:
    """List the runs, by time."""
    from dr_ctl.cli import runs  # noqa: PLC0415

    return runs.runs_list(session)


@command(runs_app, "show", full="runs show", example="runs show --follow")
def runs_show(
    session: Session,
    *,
    run: RUN = None,
    follow: Annotated[bool, option("--follow", "As it goes, until the run ends.")] = False,
) -> Result:
    """A run with its request, its steps and its end."""
    from dr_ctl.cli import following, runs  # noqa: PLC0415

    return following.follow(session, run) if follow else runs.runs_show(session, run)


@command(runs_app, "verify", full="runs verify", example="runs verify")
def runs_verify(
    session: Session,
    *,
    run: Annotated[str | None, argument("[RUN]", "A run or its beginning; default: all.")] = None,
) -> Result:
    """Check that journals and results are as they were written: 10 when one was altered, naming the line."""
    from dr_ctl.cli import runs  # noqa: PLC0415

    return runs.runs_verify(session, run)


@command(runs_app, "report", full="runs report", example="runs report --index --since 365d")
def runs_report(
    session: Session,
    *,
    run: RUN = None,
    index: Annotated[bool, option("--index", "One page over all runs and rehearsals, against the objectives.")] = False,
    since: Annotated[str | None, option("--since T", "With --index: a moment, or a duration back; a year.")] = None,
    out: Annotated[Path | None, option("--out FILE", "With --index: where; default: beside the runs.")] = None,
) -> Result:
    """Write one run's HTML report anew, or one page over all of them, and say where it is."""
    from dr_ctl.cli import asking, runs  # noqa: PLC0415

    if index and run is None:
        return runs.runs_index(session, asking.moment(session, "--since", since), out)
    if index or since is not None or out is not None:
        text = "--index is of all runs" if index else "--since and --out are of the page over all runs"
        raise UsageError(text, remedy="`dr-ctl runs report RUN` writes one run's page, `--index` that over all.")
    return runs.runs_report(session, run)


@command(runs_app, "bundle", full="runs bundle", example="runs bundle 20261121T091512Z --out for-support.tar.gz")
def runs_bundle(
    session: Session,
    *,
    run: RUN = None,
    out: Annotated[Path | None, option("--out FILE", "Where to write it; default: RUN.tar.gz here.")] = None,
) -> Result:
    """Everything of one run in a file to hand on: journal, report, settings, an hour of history; no secret in it."""
    from dr_ctl.application import bundling  # noqa: PLC0415

    return bundling.bundle(session, session.past().find(run), out, has_settings=session.has_settings())


@command(history_app, "history", example="history --since 30d")
def history(
    session: Session,
    *,
    since: Annotated[str | None, option("--since T", "A moment, or a duration back: 30d; default: all.")] = None,
) -> Result:
    """Which site served since when, by whom and why, and how long clients were out: by runs and recorded looks."""
    from dr_ctl.application import history  # noqa: PLC0415
    from dr_ctl.cli import asking  # noqa: PLC0415

    installation = session.installation() if session.has_settings() else None
    return history.history(session.past().all(), installation, asking.moment(session, "--since", since))
