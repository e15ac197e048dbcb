"""The common options of one command, resolved: where settings and state are, and who is told what."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dr_ctl.core.notation import line
from dr_ctl.core.system import Clock, SystemClock
from dr_ctl.core.timeouts import Timeouts

if TYPE_CHECKING:
    from dr_ctl.application.caller import People
    from dr_ctl.core.model import Finding, Json
    from dr_ctl.engine.runs import Owner, Runs
    from dr_ctl.settings.model import Installation
    from dr_ctl.telemetry.events import Listener


@dataclass(frozen=True, slots=True)
class Time:
    clock: Clock = field(default_factory=SystemClock)
    timeouts: Timeouts = field(default_factory=Timeouts)
    typed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """Implements `Caller` for the person or script at this process's streams."""

    command: str = ""
    config: Path | None = None
    state_dir: Path | None = None
    verbose: bool = False
    color: bool = True
    json: bool = False
    quiet: bool = False
    warn_exit: bool = False
    clock: Clock = field(default_factory=SystemClock)
    timeouts: Timeouts = field(default_factory=Timeouts)
    words: tuple[str, ...] = ()
    _read: dict[Path, Installation] = field(default_factory=dict, repr=False)
    _namesakes: dict[Path, None] = field(default_factory=dict, repr=False)

    @property
    def typed(self) -> str:
        """The command line, as a shell takes it."""
        return shlex.join(["dr-ctl", *self.words])

    def installation(self) -> Installation:
        """Read the settings, once for the whole command; raises `SettingsError` with all that is wrong."""
        from dr_ctl.settings.loader import find, load  # noqa: PLC0415 - only commands that need it pay for it

        file = find(self.config)
        if file not in self._read:
            self._read[file] = load(file)
        return self._read[file]

    def has_settings(self) -> bool:
        """Say whether a settings file was named or exists at a default place."""
        from dr_ctl.settings.loader import find  # noqa: PLC0415

        return self.config is not None or find(None).exists()

    def state(self) -> Path:
        from platformdirs import user_state_path  # noqa: PLC0415

        named = os.environ.get("DR_CTL_STATE_DIR")
        if self.state_dir or named:
            return self.state_dir or Path(str(named))
        everything = user_state_path("dr-ctl")
        if not self.has_settings():
            return everything
        place = self._owner().place(everything)
        self._namesakes.update(dict.fromkeys(place.namesakes))
        return place.path

    @property
    def unclaimed(self) -> list[Finding]:
        """The places of runs that may be this installation's, where nothing lies in its own yet."""
        from dr_ctl.engine.runs import unclaimed  # noqa: PLC0415

        return unclaimed(self._namesakes) if self._namesakes else []

    def runs(self) -> Runs:
        """Raises `Foreign` where another installation's lie in that place."""
        from dr_ctl.engine.runs import Runs  # noqa: PLC0415

        state = self.state()
        claimed = self.state_dir is not None
        return Runs(state, self.clock, self._owner(), claimed=claimed, namesakes=[*self._namesakes])

    def past(self) -> Runs:
        """The runs as they lie there, whosever they are: to be read only."""
        from dr_ctl.engine.runs import Runs  # noqa: PLC0415

        return Runs(self.state(), self.clock)

    def _owner(self) -> Owner:
        from dr_ctl.engine.runs import Owner  # noqa: PLC0415

        installation = self.installation()
        return Owner(installation.settings.name, installation.addresses)

    def listener(self) -> Listener:
        from dr_ctl.cli.screen import Screen  # noqa: PLC0415
        from dr_ctl.telemetry.events import nobody  # noqa: PLC0415

        return nobody if self.quiet else Screen(color=self.color)

    def say(self, text: str) -> None:
        """A message to the person at the terminal, beside the result."""
        if not self.quiet:
            typer.echo(line(text), err=True)

    def line(self, document: Mapping[str, Json], text: str) -> None:
        """Report from a command that goes on: a JSON line on standard output, or a message."""
        if self.json:
            from dr_ctl.cli.output import as_line  # noqa: PLC0415

            print(as_line(document), flush=True)  # noqa: T201 - the command's output
        else:
            self.say(text)

    @property
    def people(self) -> People:
        from dr_ctl.cli.people import Terminal  # noqa: PLC0415

        return Terminal()

    def called(self, command: str) -> Session:
        return replace(self, command=command)
