"""Ports through which a use-case asks the person or script behind a command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dr_ctl.core.model import Json
from dr_ctl.core.system import Clock
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.executor import Answer
from dr_ctl.engine.plan import Plan, PlannedStep
from dr_ctl.engine.runs import Runs
from dr_ctl.settings.model import Installation
from dr_ctl.telemetry.events import Listener


class People(Protocol):
    """The person at the terminal. Where there is none nothing is asked, and that is no yes."""

    def present(self) -> bool:
        """Say whether somebody can be asked."""

    def says_yes(self, sentence: str) -> bool:
        """Ask for a yes."""

    def secret(self, sentence: str) -> str | None:
        """Ask for what nobody may read on the screen; None where nobody can be asked."""

    def agrees(self, plan: Plan, cost: str) -> bool:
        """Show a plan, and ask for the name of the site that it is about, with the cost beside the question."""

    def approves(self, plan: Plan) -> bool:
        """Show a plan, and ask whether this person stands for it with a signature."""

    def stepwise(self, step: PlannedStep, may_undo: bool, /) -> Answer:
        """Ask before a step."""


class Caller(Protocol):
    """One command's surroundings."""

    @property
    def command(self) -> str:
        """The command's name in the envelope."""

    @property
    def typed(self) -> str:
        """The whole command line, as a shell takes it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def timeouts(self) -> Timeouts:
        """How long waits last."""

    @property
    def people(self) -> People: ...

    def called(self, command: str) -> Caller:
        """A caller for a command that this one makes."""

    def installation(self) -> Installation:
        """Read the settings; raises `SettingsError` with all that is wrong."""

    def state(self) -> Path:
        """Where runs are kept."""

    def runs(self) -> Runs:
        """The runs of that place."""

    def listener(self) -> Listener: ...

    def say(self, text: str) -> None:
        """A message to the person, beside the result."""

    def line(self, document: Mapping[str, Json], text: str) -> None:
        """Report from a command that goes on: a JSON line for a script, a message for a person."""
