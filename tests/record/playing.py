"""Plays an operation on a twin in simulated time: every changing call in its order, and its end, which is judged."""

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
class Played:
    calls: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    was_met: bool = True
    """Whether what was to befall it did."""
    changes: list[Change] = field(default_factory=list)
    requests: list[tuple[int, int]] = field(default_factory=list)
    """Before which call each request to change something was made, and after which it was answered."""
    plan: dict[str, Any] | None = None
    scene: Scene | None = None


def play(topology: str, name: str, trouble: Trouble | None = None, undisturbed: Played | None = None) -> Played:
    """Play one operation from a scene of its own to its end, and judge what is told of it."""
    operation, played = OPERATIONS[name], Played()
    with _stage(topology) as (twin, dr_ctl, patch):
        operation.before(twin, dr_ctl)
        if undisturbed is None:
            played.plan = dr_ctl(*operation.words, "--dry-run").document["data"].get("plan")
        scene = Scene(twin, patch)
        _listen(twin, patch, played)
        at, after = trouble.dies if trouble is not None else (None, False)
        death = Death(at, after=after, calls=played.calls)
        with patch.context() as struck:
            death.strike(struck)
            if trouble is not None and trouble.fault is not None:
                twin.host(trouble.site).faults.add(trouble.fault)
            ended = _typed(played, dr_ctl, *operation.words, "--yes")
        for site in twin.sites:
            played.was_met &= not twin.host(site).faults.unused
            twin.host(site).faults.clear()
        killed = ended is None
        if ended is None:
            tells_who_serves(twin, dr_ctl("status"))
            ended = _typed(played, dr_ctl, "resume", "--yes")
        assert ended is not None
        played.requests, played.scene = death.requests, scene
        scene.ended(killed=killed)
        true_to(scene, operation, ended, undisturbed.scene if undisturbed is not None else None)
        if played.plan is not None:
            as_planned(played.plan, twin.directory.parent / "state" / "runs" / ended.document["run"])
        played.ends.append(_situation(twin))
        assert not killed or dr_ctl("runs", "verify").code == 0
        normal = Normal(twin.directory.parent)
        played.calls, played.ends = [[normal(line) for line in lines] for lines in (played.calls, played.ends)]
    return played


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


def _typed(played: Played, dr_ctl: Command, *words: str) -> Ended | None:
    try:
        ended = dr_ctl(*words)
    except Died:
        played.calls.append("-- killed; resume --")
        return None
    document = ended.document
    findings = ", ".join(finding["id"] for finding in document["findings"])
    summary = f"{words[0]} {ended.code} {document['outcome']}: {document['summary']}"
    played.ends.append(f"{summary} [{findings}]" if findings else summary)
    return ended


def _situation(twin: PlayedTwin) -> str:
    parts = {"serving": list(serving(twin)), "paused": paused(twin), "documents": sorted(documents(twin))}
    return "; ".join(f"{what} {', '.join(names) or '-'}" for what, names in parts.items()).replace(" dr-ctl.", " ")


def _listen(twin: PlayedTwin, patch: pytest.MonkeyPatch, played: Played) -> None:
    for site in twin.sites:
        host = twin.host(site)
        patch.setattr(host, "record_change", _noting(host, site, played))


def _noting(host: Host, site: str, played: Played) -> Callable[[Request, int], None]:
    record_change = host.record_change

    def noted(request: Request, status: int) -> None:
        record_change(request, status)
        line = f"{site} {call(request)}{'' if status == 200 else f' -> {status}'}".replace(" dr-ctl.", " ")
        if line in played.calls[-2:] and " lock." in line:
            return  # a lock is renewed at both sites, as often as a run needs it
        played.calls.append(line)
        played.changes.append(Change(site, request.verb, len(played.calls)))

    return noted
