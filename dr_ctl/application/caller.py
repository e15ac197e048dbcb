"""The context of a command: its settings, its state, and the person or script that it reports to and asks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dr_ctl import engine
from dr_ctl.core.timeouts import Timeouts

if TYPE_CHECKING:
    from dr_ctl.core.model import Finding, Json
    from dr_ctl.engine.executor import Answer
    from dr_ctl.engine.plan import Plan, PlannedStep
    from dr_ctl.settings.model import Installation
    from dr_ctl.telemetry.events import EventSink


SAID_NO: Final = "a person said no"


class People(Protocol):
    """The person at the terminal. Without a terminal no question is asked; a missing answer is a no."""

    def present(self) -> bool: ...
    def says_yes(self, sentence: str) -> bool: ...

    def secret(self, sentence: str) -> str | None:
        """Ask for a text that the screen does not show; returns None if nobody can be asked."""

    def agrees(self, plan: Plan, cost: str) -> bool:
        """Show a plan with its cost, and ask for the name of its site."""

    def approves(self, plan: Plan) -> bool:
        """Show a plan, and ask whether this person signs it."""

    def stepwise(self, step: PlannedStep, may_undo: bool, /) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The settings and the state of a command. The command line adds output, and questions to a person."""

    command: str = ""
    config: Path | None = None
    state_dir: Path | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    words: tuple[str, ...] = ()
    _read: dict[Path, Installation] = field(default_factory=dict, repr=False)
    _namesakes: dict[Path, None] = field(default_factory=dict, repr=False)

    @property
    def typed(self) -> str:
        return shlex.join(["dr-ctl", *self.words])

    def installation(self) -> Installation:
        """Read the settings, once for the whole command; raises `SettingsError` with all that is wrong."""
        from dr_ctl.settings.loader import find, load  # noqa: PLC0415 - not every command needs it

        file = find(self.config)
        if file not in self._read:
            self._read[file] = load(file)
        return self._read[file]

    def has_settings(self) -> bool:
        from dr_ctl.settings.loader import find  # noqa: PLC0415

        return self.config is not None or find(None).exists()

    def state(self) -> Path:
        from platformdirs import user_state_path  # noqa: PLC0415

        if named := self.state_dir or os.environ.get("DR_CTL_STATE_DIR"):
            return Path(named)
        everything = user_state_path("dr-ctl")
        if not self.has_settings():
            return everything
        state, namesakes = self._owner().folder_in(everything)
        self._namesakes.update(dict.fromkeys(namesakes))
        return state

    @property
    def unclaimed(self) -> list[Finding]:
        """Findings on runs of namesakes, which may be this installation's, while its own folder is empty."""
        return engine.runs.unclaimed(self._namesakes) if self._namesakes else []

    def runs(self) -> engine.runs.Runs:
        """Open the runs; raises `Foreign` if the directory has another installation's runs."""
        state, claimed = self.state(), self.state_dir is not None
        return engine.runs.Runs(state, self._owner(), claimed=claimed, namesakes=[*self._namesakes])

    def past(self) -> engine.runs.Runs:
        """Open the runs for reading only, of any installation."""
        return engine.runs.Runs(self.state())

    def _owner(self) -> engine.runs.Owner:
        installation = self.installation()
        return engine.runs.Owner(installation.settings.name, installation.addresses)

    @property
    def people(self) -> People:
        raise NotImplementedError

    def why_not(self, agrees: Callable[[], bool], *, yes: bool) -> str | None:
        """Ask a person, if there is one; return the reason for a no, or None for a yes, also by `--yes`."""
        if yes or (self.people.present() and agrees()):
            return None
        return SAID_NO if self.people.present() else "nobody could be asked, and --yes was not given"

    def listener(self) -> EventSink:
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Show a message to the person, beside the result."""
        raise NotImplementedError

    def show(self, plan: Plan) -> None:
        """Show a person the plan of a run that is about to wait."""
        raise NotImplementedError

    def line(self, document: Mapping[str, Json], text: str) -> None:
        """Report while the command runs: a JSON line for a script, a message for a person."""
        raise NotImplementedError
