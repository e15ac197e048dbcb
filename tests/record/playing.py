"""Plays an operation on a twin in simulated time, records its changing calls and its end, and judges them."""

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from dr_ctl.cli.app import run
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.host import Host
from dr_ctl_lab.twin.jolokia import Request
from dr_ctl_lab.twin.kinds import CONTINUITY
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.record.troubles import Change, Trouble
from tests.record.truth import Scene, as_planned, tells_who_serves, true_to
from tests.scenarios.calls import Normal, call
from tests.simulated import nothing_real
from tests.timeouts import impatient, time_now
from tests.twin.conftest import prompt
from tests.twin.matrix import OPERATIONS, Death, Died, documents, paused, serving

_POLL_S: Final = 0.1


@dataclass(slots=True)
class Course:
    calls: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    was_met: bool = True
    """Whether the planned fault occurred."""
    changes: list[Change] = field(default_factory=list)
    requests: list[tuple[int, int]] = field(default_factory=list)
    """Of each changing request: the numbers of the next call before it, and of the last call after its answer."""
    plan: dict[str, Any] | None = None
    scene: Scene | None = None


def play(topology: str, name: str, trouble: Trouble | None = None, undisturbed: Course | None = None) -> Course:
    """Play one operation on a new twin to its end, and judge its documents."""
    operation, course = OPERATIONS[name], Course()
    with _stage(topology) as (twin, dr_ctl, patch):
        operation.before(twin, dr_ctl)
        if undisturbed is None:
            course.plan = dr_ctl(*operation.words, "--dry-run").document["data"].get("plan")
        scene = Scene(twin, patch)
        _record_changes(twin, patch, course)
        at, after = trouble.dies if trouble is not None else (None, False)
        death = Death(at, after=after, calls=course.calls)
        with patch.context() as patched:
            death.strike(patched)
            if trouble is not None and trouble.fault is not None:
                twin.host(trouble.site).faults.add(trouble.fault)
            ended = _run_command(course, dr_ctl, *operation.words, "--yes")
        for site in twin.sites:
            course.was_met &= not twin.host(site).faults.unused
            twin.host(site).faults.clear()
        killed = ended is None
        if ended is None:
            tells_who_serves(twin, dr_ctl("status"))
            ended = _run_command(course, dr_ctl, "resume", "--yes")
        assert ended is not None
        course.requests, course.scene = death.requests, scene
        scene.ended(killed=killed)
        true_to(scene, operation, ended, undisturbed.scene if undisturbed is not None else None)
        if course.plan is not None:
            as_planned(course.plan, twin.directory.parent / "state" / "runs" / ended.document["run"])
        course.ends.append(_situation(twin))
        assert not killed or dr_ctl("runs", "verify").code == 0
        normal = Normal(twin.directory.parent)
        course.calls, course.ends = [[normal(line) for line in lines] for lines in (course.calls, course.ends)]
    return course


@contextmanager
def _stage(topology: str) -> Iterator[tuple[PlayedTwin, Command, pytest.MonkeyPatch]]:
    """A twin of London and Paris in simulated time, and the command line on it."""
    with ExitStack() as until_the_end:
        home = Path(until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="dr-ctl-record-")))
        patch = until_the_end.enter_context(pytest.MonkeyPatch.context())
        until_the_end.enter_context(nothing_real())
        if topology == CONTINUITY:
            prompt(patch)
        impatient(patch, poll_s=_POLL_S)
        twin = until_the_end.enter_context(PlayedTwin.up(home / "twin", topology=topology))
        patch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        patch.setenv("DR_CTL_STATE_DIR", str(home / "state"))
        patch.setenv("PATH", str(home / "no-java"))
        patch.delenv("JAVA_HOME", raising=False)
        yield twin, _command, patch


def _command(*words: str) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*words, "--json"], time_now())
    return Ended(code, json.loads(out.getvalue()), err.getvalue())


def _run_command(course: Course, dr_ctl: Command, *words: str) -> Ended | None:
    try:
        ended = dr_ctl(*words)
    except Died:
        course.calls.append("-- killed; resume --")
        return None
    document = ended.document
    findings = ", ".join(finding["id"] for finding in document["findings"])
    summary = f"{words[0]} {ended.code} {document['outcome']}: {document['summary']}"
    course.ends.append(f"{summary} [{findings}]" if findings else summary)
    return ended


def _situation(twin: PlayedTwin) -> str:
    parts = {"serving": list(serving(twin)), "paused": paused(twin), "documents": sorted(documents(twin))}
    return "; ".join(f"{name} {', '.join(names) or '-'}" for name, names in parts.items()).replace(" dr-ctl.", " ")


def _record_changes(twin: PlayedTwin, patch: pytest.MonkeyPatch, course: Course) -> None:
    for site in twin.sites:
        host = twin.host(site)
        patch.setattr(host, "record_change", _recording(host, site, course))


def _recording(host: Host, site: str, course: Course) -> Callable[[Request, int], None]:
    record_change = host.record_change

    def recorded(request: Request, status: int) -> None:
        record_change(request, status)
        line = f"{site} {call(request)}{'' if status == 200 else f' -> {status}'}".replace(" dr-ctl.", " ")
        if line in course.calls[-2:] and " lock." in line:
            return  # a lock is renewed at both sites, as often as a run needs it
        course.calls.append(line)
        course.changes.append(Change(site, request.verb, len(course.calls)))

    return recorded
