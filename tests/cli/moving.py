"""Moves from the command line, a person in front of them, and a run whose process died on the way."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from dr_ctl.engine.plan import Ask, Plan, PlannedStep
from tests.cli.conftest import Ended, Shell
from tests.cli.installation import Installation
from tests.report.scribe import NAME, Scribe

MOVE = ["pause()", "pause()", "stop()", "resume()", "resume()", "start()"]
ACCEPTED = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")


class Terminal(io.StringIO):
    """What a person types; `at_question` is what happens while the answer is awaited."""

    at_question: Callable[[], None] = staticmethod(lambda: None)

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:
        self.at_question()
        return super().readline(size)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """Put a person in front of the command, who types this and then goes away."""

    def typing(text: str) -> Terminal:
        terminal = Terminal(text)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return terminal

    return typing


def swapover(dr_ctl: Shell, *words: str, to: str = "paris") -> Ended:
    return dr_ctl("swapover", "--to", to, "--json", *words)


def failover(dr_ctl: Shell, *words: str) -> Ended:
    return dr_ctl("failover", "--to", "paris", "--json", *words)


def owed(ended: Ended) -> list[tuple[str, str]]:
    return [(debt["kind"], debt["site"]) for debt in ended.document["debts"]]


def begun(dr_ctl: Shell, installation: Installation, *verbs: str) -> None:
    """A run whose process died after these steps, with what it had changed until then."""
    dr_ctl("plan", "swapover", "--to", "paris", "--out", "plan.json")
    told = json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8"))
    steps = tuple(PlannedStep.from_json(step) for step in told["steps"])
    folder = dr_ctl.state / "runs" / NAME
    folder.mkdir(parents=True)
    asked = Ask.from_json(told["ask"])
    scribe = Scribe(
        folder, plan=Plan(asked, "london", steps, (), told["baseline"], (), (), ("london",), basis=told["basis"])
    )
    scribe.begin()
    for verb in verbs:
        calls = [call for call in scribe.step(verb).calls if call.when is None]
        for call in calls:
            site = installation.london if call.site == "london" else installation.paris
            site.do(call)
        scribe.start(verb).sent(verb, *calls).stop(verb)
    scribe.close()
    installation.forget()
