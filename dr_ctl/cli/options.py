"""Declares options by what is typed, as in `--to SITE`: the word for the value says how it is completed. An option that
sets a field of `Ask` or `RunOptions` is declared there."""

from __future__ import annotations

from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from dr_ctl.cli.completing import COMPLETED
from dr_ctl.engine.ask import Ask, RunOptions

FIELDS: Final = {each.name: each.metadata for each in (*fields(RunOptions), *fields(Ask)) if "typed" in each.metadata}
_KINDS: Final[dict[str, Any]] = {"": bool, "FILE": Path | None, "DIR": Path | None, "QUEUE=N": list[str] | None}


def option(typed: str, text: str, **how: Any) -> Any:
    name, _, value = typed.partition(" ")
    return typer.Option(name, metavar=value or None, help=text, autocompletion=COMPLETED.get(value), **how)


def argument(value: str, text: str | None = None) -> Any:
    return typer.Argument(metavar=value, help=text, autocompletion=COMPLETED.get(value.strip("[]")))


def parameter(name: str, kind: Any, declared: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, declared], default=default)


def switch(name: str, typed: str, text: str, **how: Any) -> Parameter:
    """An option that need not be given; one without a value is on or off."""
    kind = _KINDS.get(typed.partition(" ")[2], str | None)
    return parameter(name, kind, option(typed, text, **how), False if kind is bool else None)


def of(*names: str) -> tuple[Parameter, ...]:
    """The options that set these fields of `Ask` or `RunOptions`."""
    return tuple(switch(name, FIELDS[name]["typed"], FIELDS[name]["help"]) for name in names)


TO: Final = parameter("to", str, option("--to SITE", "The site that shall serve."))
SITE: Final = parameter("site", str, argument("SITE"))
LOST: Final = parameter("site", str, argument("SITE", "The lost site that is back."))

LINK: Final = (SITE, *of("timeout_s"))
STEP: Final = (SITE, *of("timeout_s", "queues"))
DRAIN: Final = (TO, *of("timeout_s", "accept_difference", "accept_duplicates", "queues"))
MOVE: Final = (
    TO,
    *of("timeout_s", "max_outage_s", "cut_in_flight", "accept_difference", "accept_duplicates", "queues"),
)
FAILOVER: Final = (TO, *of("timeout_s", "accept_loss", "accept_duplicates", "presume_down", "silent_since"))
REINSTATE: Final = (LOST, *of("timeout_s", "accept_duplicates"))
PLAN: Final = (
    parameter("operation", str, argument("OPERATION", "swapover, failover, failback, reinstate")),
    parameter("site", str | None, argument("[SITE]", "The site to serve, or to take in."), None),
    switch("to", "--to SITE", "The same."),
    *of("timeout_s", "max_outage_s", "cut_in_flight", "accept_difference", "queues", "expect_serving"),
    *of("accept_loss", "accept_duplicates", "presume_down", "silent_since", "reason"),
)
# How any command that may change a broker is run; one that has steps; one that carries out a whole plan.
CHANGE: Final = of("yes", "dry_run", "break_lock", "reason", "expect_serving")
STEPWISE: Final = (*CHANGE, *of("step"))
WHOLE: Final = (*STEPWISE, *of("saved"))


def everywhere(*, before: bool) -> list[Parameter]:
    """What every command takes. The first four work before the command as well, and help shows them there."""
    first = {"hidden": not before}
    output = option("--output text|json", "Text, or one JSON document.")
    return [
        switch("config", "--config FILE", "The settings file.", **first),
        switch("state_dir", "--state-dir DIR", "Where runs are kept.", **first),
        switch("verbose", "--verbose", "Say the cause of an error.", **first),
        switch("no_color", "--no-color", "Plain text, as with NO_COLOR.", **first),
        parameter("output", Literal["text", "json"] | None, output, None),
        switch("json", "--json", "Short for --output json."),
        switch("quiet", "--quiet", "No progress on standard error."),
        *(
            ()
            if before
            else (switch("warn_exit", "--warn-exit", "End with 30 instead of 0 where there are warnings."),)
        ),
    ]
