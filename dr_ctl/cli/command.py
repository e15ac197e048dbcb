"""How commands are declared: the options that all of them take, and how a function becomes one.

The common options work before the command and after it; after it wins.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dr_ctl import __version__
from dr_ctl.cli.helping import Group
from dr_ctl.cli.session import Session, Time

if TYPE_CHECKING:
    from dr_ctl.application.result import Result

Output = Literal["text", "json"]
Option = tuple[str, Any, Any]  # parameter name, annotated type, default

CONFIG = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The settings file.")]
STATE = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="Where runs are kept.")]
VERBOSE = Annotated[bool, typer.Option("--verbose", help="Say the cause of an error.")]
NO_COLOR = Annotated[bool, typer.Option("--no-color", help="Plain text, as with NO_COLOR.")]
OUTPUT = Annotated[Output | None, typer.Option("--output", metavar="text|json", help="Text, or one JSON document.")]
JSON = Annotated[bool, typer.Option("--json", help="Short for --output json.")]
QUIET = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
WARN_EXIT = Annotated[bool, typer.Option("--warn-exit", help="End with 30 instead of 0 where there are warnings.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dr-ctl {__version__}")
        raise typer.Exit


VERSION = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_version, help="Say which version this is, and end.")
]


def group(text: str) -> typer.Typer:
    """Make an empty group of commands."""
    return typer.Typer(cls=Group, rich_markup_mode=None, help=text)


def common(
    ctx: typer.Context,
    config: CONFIG = None,
    state_dir: STATE = None,
    verbose: VERBOSE = False,
    no_color: NO_COLOR = False,
    output: OUTPUT = None,
    json: JSON = False,
    quiet: QUIET = False,
    *,
    version: VERSION = False,
) -> None:
    """Move a messaging service between two sites of ActiveMQ brokers: checked, stepwise, undone when it fails."""
    del version  # told already
    time: Time = ctx.obj or Time()
    ctx.obj = Session(
        clock=time.clock,
        patience=time.patience,
        config=config,
        state_dir=state_dir,
        verbose=verbose,
        color=not (no_color or os.environ.get("NO_COLOR")),
        json=json or output == "json",
        quiet=quiet,
    )


# Parameters that are no options: help must not load these types.
_UNREAD = dict.fromkeys(("Session", "Ask", "RunOptions", "Result"), object)
_EVERYWHERE = (
    ("output", OUTPUT, None),
    ("json", JSON, False),
    ("quiet", QUIET, False),
    ("warn_exit", WARN_EXIT, False),
)


def command(
    app: typer.Typer,
    name: str,
    *,
    full: str | None = None,
    asks: Sequence[Option] = (),
    how: Sequence[Option] = (),
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function as a command: gives it the session, adds the options that every command takes, and ends with
    its result's exit code. `full` is the command's whole name where `app` is a group. `asks` are options that become
    the function's one argument `asked`, of the command or of the `operation` that it takes; `how` those that become its
    argument of that name."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        own = inspect.signature(function, locals=_UNREAD, eval_str=True)
        parameters = [
            *_declared(asks),
            *(each for each in own.parameters.values() if each.name not in ("session", "asked", "how")),
            *_declared((*how, *_EVERYWHERE)),
        ]
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        def run(**options: Any) -> None:
            before: Session = options.pop("ctx").obj
            output, as_json = options.pop("output"), options.pop("json")
            session = replace(
                before,
                command=full or name,
                json=as_json or (output == "json" if output is not None else before.json),
                quiet=options.pop("quiet") or before.quiet,
                warn_exit=options.pop("warn_exit"),
            )
            if asks or how:
                from dr_ctl.cli import asking  # noqa: PLC0415

                manner = {key: options.pop(key) for key, _, _ in how}
                if how:
                    options["how"] = asking.how(**manner)
                if asks:
                    wanted: dict[str, Any] = {"reason": manner.get("reason")} | {
                        key: options.pop(key) for key, _, _ in asks
                    }
                    wanted |= {"site": options["site"]} if "site" in options else {}
                    operation = asking.whole(options["operation"]) if "operation" in options else full or name
                    options["asked"] = asking.asked(session, operation, **wanted)
            from dr_ctl.cli.render import end  # noqa: PLC0415

            raise typer.Exit(end(function(session, **options), session))

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        run.__signature__ = inspect.Signature([*parameters, context])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        app.command(name)(run)
        return function

    return register


def _declared(options: Sequence[Option]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for key, kind, default in options
    ]
