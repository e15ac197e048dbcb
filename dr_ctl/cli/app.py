"""The command line: declares the commands, calls, ends. Commands import their work when they run, so that help and
completion stay instant."""

from __future__ import annotations

import gc
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dr_ctl import application, cli
from dr_ctl.application.result import Result
from dr_ctl.cli.command import UsageErrors, app, command, failed, wants_json
from dr_ctl.cli.operations import link_app
from dr_ctl.cli.options import CHANGE, NO_DRAIN, argument, moment, option, seconds_of, settling, switch
from dr_ctl.cli.output import end_of_help, make_lasting
from dr_ctl.cli.rpo_app import rpo_app
from dr_ctl.cli.runbooks import runbook_app
from dr_ctl.cli.runs import runs_app
from dr_ctl.cli.session import Session
from dr_ctl.core import machine
from dr_ctl.core.errors import Stopped, UsageError
from dr_ctl.core.model import ExitCode, Finding, Severity

if TYPE_CHECKING:
    from dr_ctl.engine.plan import RunOptions, Spec

for added in (runs_app, runbook_app, rpo_app, link_app):
    app.add_typer(added, name=str(added.info.name))

METRICS = Annotated[str | None, option("--metrics HOST:PORT", "Serve /metrics, /health and /ready there.")]
_EXTRA = re.compile(r"extra argument\S* \((\S+)\)")  # a site that was typed without its --to
_REINSTATES = "The monitor reinstates a lost site once it is back, under the lock."
_UNFENCES = "The monitor opens the site that served last if a restart closed it, under the lock."
_QUARANTINES = "The monitor keeps a lost site out again if a restart let it in, under the lock."
AUTO = (
    switch("auto_reinstate", "--auto-reinstate", _REINSTATES),
    switch("auto_unfence", "--auto-unfence", _UNFENCES),
    switch("auto_quarantine", "--auto-quarantine", _QUARANTINES),
)


@command(
    app, "init", example="init london=http://london-1:8161/console/jolokia paris=http://paris-1:8161/console/jolokia"
)
def init(
    session: Session,
    *,
    urls: Annotated[list[str] | None, argument("[[SITE=]URL]...")] = None,
    topology: Annotated[
        str | None, option("--topology ID", "The topology, if not recognized; without addresses: its example.")
    ] = None,
    out: Annotated[Path, option("--out FILE", "The settings file to write.")] = Path("dr-ctl.yaml"),
    name: Annotated[str, option("--name NAME", "The name of the installation.")] = "orders",
    username: Annotated[str, option("--username NAME", "The login at the brokers.")] = "dr-ctl",
    ca: Annotated[Path | None, option("--ca FILE", "The authorities of the brokers' certificates.")] = None,
    examples: Annotated[
        Path | None, option("--examples DIR", "Write the examples there instead: settings, scripts, alerts.")
    ] = None,
    systemd: Annotated[
        Path | None, option("--systemd DIR", "Write systemd units there for the existing settings file.")
    ] = None,
    kubernetes: Annotated[
        Path | None, option("--kubernetes DIR", "The same as manifests: monitor, probes, rehearsal.")
    ] = None,
    image: Annotated[str | None, option("--image NAME", "With --kubernetes: the image that has dr-ctl.")] = None,
    does: Annotated[Sequence[str], AUTO] = (),
) -> Result:
    """Write a settings file, without secrets, from what the brokers behind two or more management addresses show."""
    if examples is not None:
        return application.init.write_examples(examples)
    if systemd is not None or kubernetes is not None:
        if systemd is not None:
            return application.deploying.systemd(session, systemd, session.state_dir, does)
        assert kubernetes is not None
        return application.deploying.kubernetes(session, kubernetes, image or application.deploying.IMAGE, does)
    if not urls:
        if topology is None:
            remedy = "Name the brokers' management addresses, or --topology ID for its example: see --help."
            raise UsageError("no address and no topology was named", remedy=remedy)
        return application.init.write_example(topology, out)
    begun = application.init.begin(session, application.init.InitRequest(urls, out, name, username, topology, ca))
    if not out.exists():
        return begun
    return application.init.with_verdict(
        begun, application.readiness.validate(replace(session, config=out), None, None, verbose=False)
    )


@command(app, "validate", example="validate --for swapover --to paris")
def validate(
    session: Session,
    *,
    operation: Annotated[str | None, option("--for OPERATION", "Only this operation.")] = None,
    to: Annotated[str | None, option("--to SITE", "The site that would serve, or be reinstated.")] = None,
    offline: Annotated[
        bool, option("--offline", "Only the settings and the files that they name, without a broker: for a CI.")
    ] = False,
    verbose: Annotated[bool, option("--verbose", "List each check: verdict, evidence, age.")] = False,
) -> Result:
    """Check the installation: named checks, then what each operation would answer now. The exit code is that of the
    first operation: of `swapover`, or of `--for`."""
    if offline:
        if operation is not None or to is not None:
            raise UsageError("--offline checks no operation", remedy="Leave --for and --to out.")
        return application.readiness.validate_offline(session, verbose=verbose or session.verbose)
    return application.readiness.validate(session, operation, to, verbose=verbose or session.verbose)


@command(app, "status", example="status --watch --every 5s", forms=("wide", "name"))
def status(
    session: Session,
    *,
    site: Annotated[
        str | None, argument("[SITE]", "Only its brokers as text; the findings and the document are of both sites.")
    ] = None,
    watch: Annotated[
        bool, option("--watch", "Repeat until Ctrl-C: in place on a terminal, else one block for each reading.")
    ] = False,
    every: Annotated[str | None, option("--every T", "With --watch: interval between readings; default 2s.")] = None,
) -> Result:
    """Serving sites, links, outflows with rates, the last estimate, open runs, pauses, debts (marked `$`)."""
    if site is not None:
        session.installation().must_know(site)
    if not watch:
        if every is not None:
            raise UsageError("--every is for --watch", remedy=f"`dr-ctl status --watch --every {every}`.")
        return cli.show.headed(session, site)
    return cli.screen.watch(session, site, seconds_of("--every", every or "2s") or cli.screen.EVERY_S)


@command(app, "check", example="check --within 5s")
def check(
    session: Session, *, within: Annotated[str, option("--within T", "Its own time limit, as in 3s.")] = "3s"
) -> Result:
    """For machines: one line; 0 well, 1 warning, 2 critical, 3 unknown."""
    try:
        within_s = seconds_of("--within", within)
    except UsageError as error:  # 2 would be read as critical
        return application.status.unknown(error)
    return application.status.check(session, within_s)


@command(app, "explain", example="explain 21")
def explain(
    session: Session,
    *,
    word: Annotated[
        str,
        argument(
            "CODE|ID|WORD", "An exit code or outcome, a finding's id, as DR-RUN-003, or a word of dr-ctl's, as fence."
        ),
    ] = "",
) -> Result:
    """Explain an exit code or a finding: meaning, command to type, costs, undo. Or a word: the field's word for it."""
    del session  # explaining needs neither settings nor brokers
    return application.explaining.explain(word)


@command(app, "schema", example="schema status")
def schema(
    session: Session,
    *,
    words: Annotated[list[str] | None, argument("[COMMAND]", "Its command; default: the settings.")] = None,
) -> Result:
    """The JSON Schema of the settings file, or of a command's document, from dr-ctl's own types."""
    del session
    return application.documents.shown(" ".join(words) if words else None)


@command(app, "monitor", example="monitor --metrics 127.0.0.1:9464")
def monitor(
    session: Session,
    *,
    lasting: Annotated[str | None, option("--for T", "End after this time.")] = None,
    does: Annotated[Sequence[str], AUTO] = (),
    metrics: METRICS = None,
) -> Result:
    """Sample both sites into the history, refresh the stored estimate. Changes nothing without an `--auto-…` option."""
    machine.give_back()
    lasting_s = seconds_of("--for", lasting) if lasting is not None else None
    return application.monitoring.monitor(session, lasting_s, does, metrics=metrics)


@command(app, "maintenance", example='maintenance on --until 04:00 --reason "new disks, CHG-4711"')
def maintenance(
    session: Session,
    *,
    what: Annotated[
        Literal["on", "off", "status"] | None, argument("[on|off|status]", "Begin, end or show; default: show.")
    ] = None,
    until: Annotated[
        str | None, option("--until T", "With on: when it ends by itself (04:00, a date, UTC; or 90m).")
    ] = None,
    reason: Annotated[str | None, option("--reason TEXT", "With on: the reason, shown with the maintenance.")] = None,
) -> Result:
    """Keep the monitor and `check` from alerting for expected states, until T. Never silences split brain."""
    if what != "on":
        if until is not None or reason is not None:
            raise UsageError("--until and --reason are for `maintenance on`")
        return application.maintenance.end(session) if what == "off" else application.maintenance.shown(session)
    if until is None or not reason:
        raise UsageError("maintenance on needs --until and --reason", remedy="As in --until 90m --reason CHG-4711.")
    return application.maintenance.begin(session, moment("--until", until, ahead=True), reason)


@command(app, "sync", example='sync --hold "a purge of orders.in, ticket 4711"', asks=NO_DRAIN, changes=CHANGE)
def sync(
    session: Session,
    asked: Spec,
    how: RunOptions,
    *,
    lasting: Annotated[str | None, option("--for T", "End after this time.")] = None,
    metrics: METRICS = None,
    hold: Annotated[str | None, option("--hold REASON", "Tell the agent to delete nothing: before a purge.")] = None,
    go_on: Annotated[bool, option("--go-on", "Let it delete again; purged messages count as consumed.")] = False,
    settle: Annotated[bool, option("--settle", "Move aside the copies without evidence at the standby SITE.")] = False,
    put_back: Annotated[bool, option("--put-back", "With --settle: put back what was moved aside.")] = False,
    site: Annotated[str | None, option("--site SITE", "With --settle: the site.")] = None,
    queues: Annotated[str | None, option("--queues PATTERN", "With --settle: only these.")] = None,
) -> Result:
    """The agent that keeps a Classic standby clean of messages already consumed. Ends when its site no longer
    serves."""
    del asked  # the agent drains nothing
    if sum((hold is not None, go_on, settle)) > 1:
        raise UsageError("--hold, --go-on and --settle contradict each other")
    if not settle and (how.dry_run or put_back or site is not None or queues is not None):
        remedy = "Add --settle, or leave them out: without it `dr-ctl sync` starts the agent, which deletes copies."
        raise UsageError("--dry-run, --put-back, --site and --queues go with --settle", remedy=remedy)
    if settle:
        return application.syncing.settle(session, settling(session, how, site, queues, put_back=put_back), how)
    if hold is not None:
        return application.syncing.hold(session, hold)
    if go_on:
        return application.syncing.go_on(session)
    lasting_s = seconds_of("--for", lasting) if lasting is not None else None
    return application.syncing.sync(session, lasting_s, metrics=metrics)


def main() -> None:
    make_lasting()
    # Modules never become garbage: searching hundreds for cycles takes a seventh of the time of a short command.
    gc.set_threshold(50_000)  # new objects since the last search; the default is 700
    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str], session: Session | None = None) -> int:
    """Run a command line; every path ends with a document or text, and an exit code. Options add to the `session`."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))  # signals wait while modules load
        session = replace(session or Session(), words=tuple(arguments))
        ended = declared()(args=arguments, prog_name="dr-ctl", standalone_mode=False, obj=session)
        return end_of_help(ended if isinstance(ended, int) else 0)
    except typer.Exit as exit_:
        return end_of_help(exit_.exit_code)
    except UsageErrors as error:
        _, _, command = error.ctx.command_path.partition(" ") if error.ctx is not None else ("", "", "")
        remedy = f"See `dr-ctl {command} --help`.".replace("  ", " ")
        text = error.format_message()
        if (extra := _EXTRA.search(text)) and any("--to" in param.opts for param in error.ctx.command.params):
            remedy = f"`dr-ctl {command} --to {extra[1]}`."
        result = Result(ExitCode.USAGE, text, (Finding("DR-USAGE", Severity.ERROR, text, remedy),))
    except Exception as error:  # noqa: BLE001 - before any command: it could not be loaded, or was stopped
        command, result = "", failed(error, verbose="--verbose" in arguments)
    return cli.output.end(result, Session(command=command, json=wants_json(arguments)))


@cache
def declared() -> Callable[..., object]:
    """Declare all commands with their options, once: that takes half as long as a simulated move."""
    return typer.main.get_command(app)


def _stop(signum: int, frame: FrameType | None) -> None:
    """Commands that are not runs end at once; runs put their own handler in place of this one."""
    del frame
    raise Stopped(signum)
