"""The common options of a command, resolved: settings, state, and the ways to tell and ask a person."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from dr_ctl import cli
from dr_ctl.application.caller import Caller
from dr_ctl.core.notation import line

if TYPE_CHECKING:
    from dr_ctl.application.caller import People
    from dr_ctl.core.model import Json
    from dr_ctl.engine.plan import Plan
    from dr_ctl.telemetry.events import EventSink


@dataclass(frozen=True, slots=True)
class Session(Caller):
    verbose: bool = False
    color: bool = True
    json: bool = False
    form: str = "text"
    quiet: bool = False
    warn_exit: bool = False

    def listener(self) -> EventSink:
        from dr_ctl.telemetry.events import nobody  # noqa: PLC0415

        return nobody if self.quiet else cli.screen.Screen(color=self.color)

    def say(self, text: str) -> None:
        if not self.quiet:
            typer.echo(cli.output.folded(line(text), sys.stderr), err=True)

    def show(self, plan: Plan) -> None:
        if not self.quiet:
            cli.people.show(plan)

    def line(self, document: Mapping[str, Json], text: str) -> None:
        if self.json:
            print(cli.output.as_line(document), flush=True)  # noqa: T201 - the command's output
        else:
            self.say(text)

    @property
    def people(self) -> People:
        return cli.people.Terminal()
