"""Undoing the run that was interrupted, unless an activating call of it may have had its effect."""

from dataclasses import replace

from dr_ctl.application import carrying_out, lock, open_run
from dr_ctl.application.afterwards import telling
from dr_ctl.application.caller import Caller
from dr_ctl.application.installation import Opened
from dr_ctl.application.open_run import left_open, no_open_run, refused_onward, why_not_undone
from dr_ctl.application.result import Result
from dr_ctl.application.run import NOBODY_ASKED, SAID_NO
from dr_ctl.core.document import document
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.core.notation import if_known, page
from dr_ctl.engine import executor
from dr_ctl.engine.ask import RunOptions
from dr_ctl.engine.history import History
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.roles import other_brokers, other_sites, unexpected
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.topology import Snapshot


def abort(caller: Caller, how: RunOptions) -> Result:
    """Look, agree, lock, look again, undo."""
    with Opened.of(caller) as opened:
        return telling(caller, opened, lambda: _aborted(caller, opened, how))


def _aborted(caller: Caller, opened: Opened, how: RunOptions) -> Result:
    runs = caller.runs()
    with open_run.holding_state(runs, "abort", held=how.dry_run):
        files = open_run.begun(runs, how)
        if files is None:
            return no_open_run()
        past = open_run.past(files, caller.clock, how)
        snapshot: Snapshot = opened.topology.observe()
        if not how.dry_run:
            lock.refuse_if_held(snapshot, runs, break_lock=how.break_lock)
        asked = replace(past.ask, expect_serving=how.expect_serving)
        opened.must_know(asked.target, asked.expect_serving, asked.presume_down)
        others = other_sites(snapshot, past) or other_brokers(opened.topology.recipe.basis(snapshot), past)
        if (others := others or unexpected(part_of(snapshot, asked), asked)) is not None:
            return Result(ExitCode.PRECHECK_FAILED, others.text, (others,), run=files.name)
        if (refused := _past_no_return(past, snapshot, files)) is not None:
            return refused
        if how.dry_run:
            return _planned(past, files)
        if not how.yes and not caller.people.says_yes(f"Undo {files.name}?"):
            text = SAID_NO if caller.people.present() else NOBODY_ASKED
            return left_open(Result(ExitCode.DECLINED, text), files)
        what = f"abort of {past.ask.operation} to {past.ask.target}"
        with lock.locked(opened, runs, snapshot, files.name, what, break_lock=how.break_lock) as lease:
            if (refused := _past_no_return(past, opened.topology.observe(), files)) is not None:
                return refused
            return carrying_out.Work(caller, opened, files, lease, how).undo(past)


def _planned(past: History, files: RunFiles) -> Result:
    """The calls that an abort would make, and the sites that would serve then."""
    steps = executor.to_undo(past)
    text = page(f"undo {step.verb}: {call.about}, if {if_known(call.when)}" for step in steps for call in step.inverse)
    undo: list[Json] = [{"step": step.id, "calls": document(step.inverse)} for step in steps]
    serves = " and ".join(past.serving)
    ending = f"{serves} would serve" if serves else "nobody would be served, as before the run"
    data: dict[str, Json] = {"undo": undo, "serves": [*past.serving]}
    return Result(ExitCode.OK, f"{ending}; nothing was changed", data=data, run=files.name, text=text)


def forget(caller: Caller, name: str, how: RunOptions) -> Result:
    """Close an open run as it is, whatever its journal says or does not say. Asks no broker and undoes nothing."""
    if how.reason is None:
        raise UsageError("--forget needs --reason", remedy="Say who serves, and how that is known: --reason TEXT.")
    runs = caller.runs()
    files = runs.find(name)
    if not files.open():
        text = f"{files.name} is not open; nothing was changed"
        return Result(ExitCode.PRECHECK_FAILED, text, (found("DR-RUN-004", text, "`dr-ctl runs list`."),))
    if how.dry_run:
        return Result(ExitCode.OK, f"{files.name} would be given up; nothing was changed", run=files.name)
    if not how.yes and not caller.people.says_yes(f"Give up {files.name}? Nothing of it is undone."):
        text = SAID_NO if caller.people.present() else NOBODY_ASKED
        return left_open(Result(ExitCode.DECLINED, text), files)
    with runs.lock(f"giving up {files.name}"):
        given_up = Result(ExitCode.UNKNOWN, f"given up: {how.reason}; nothing was undone", run=files.name)
        carrying_out.give_up(caller, files, given_up.envelope(caller.command))
    finding = found("DR-RUN-007", run=files.name)
    return Result(ExitCode.OK, f"{files.name} is given up", (finding,), run=files.name)


def _past_no_return(past: History, snapshot: Snapshot, files: RunFiles) -> Result | None:
    if (text := why_not_undone(past, snapshot)) is None:
        return None
    remedy = "`dr-ctl resume` finishes the move; a swapover back undoes it safely."
    if refused_onward(past, snapshot):
        remedy = f"`dr-ctl abort --forget {files.name} --reason TEXT` gives it up."
    finding = found("DR-RUN-005", text, remedy)
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
