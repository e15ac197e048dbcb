"""How commands are declared: the options that all of them take, and how a function becomes one.

The common options work before the command and after it; after it wins.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dr_ctl import __version__
from dr_ctl.cli.helping import Group
from dr_ctl.cli.options import (
    CONFIG,
    JSON,
    NO_COLOR,
    OUTPUT,
    QUIET,
    STATE,
    VERBOSE,
    AskOptions,
    ChangeOptions,
    Everywhere,
)
from dr_ctl.cli.session import Session, Time

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from dr_ctl.application.result import Result

T = TypeVar("T", bound="DataclassInstance")


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
        timeouts=time.timeouts,
        config=config,
        state_dir=state_dir,
        verbose=verbose,
        color=not (no_color or os.environ.get("NO_COLOR")),
        json=json or output == "json",
        quiet=quiet,
        words=tuple(time.typed),
    )


# The first line keeps the lines as they are.
_EPILOG = "\b\nExample:\n  dr-ctl {}\n\n\b\nHere too: --config, --state-dir, --verbose, --no-color (`dr-ctl --help`)."
# Parameters that are no options: help must not load these types.
_UNREAD = dict.fromkeys(("Session", "Ask", "RunOptions", "Result"), object)


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    full: str | None = None,
    asks: type[AskOptions] | None = None,
    changes: type[ChangeOptions] | None = None,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function as a command: gives it the session, adds the options that every command takes, and ends with
    its result's exit code. `example` stands at the end of its help, as it is typed. `full` is the command's whole name
    where `app` is a group. The fields of `asks` are options that become the function's argument `asked`; those of
    `changes` become its argument `how`."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        own = inspect.signature(function, locals=_UNREAD, eval_str=True)
        parameters = [
            *_declared(asks),
            *(each for each in own.parameters.values() if each.name not in ("session", "asked", "how")),
            *_declared(changes),
        ]
        taken = {each.name for each in parameters}
        every = [each for each in _declared(Everywhere) if each.name not in taken]
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        def run(**options: Any) -> None:
            before: Session = options.pop("ctx").obj
            session = _with(
                before.called(full or name), Everywhere(**{each.name: options.pop(each.name) for each in every})
            )
            if asks is not None or changes is not None:
                from dr_ctl.cli import asking  # noqa: PLC0415

                manner = _taken(changes, options) if changes is not None else None
                if asks is not None:
                    reason = manner.reason if manner is not None else None
                    options["asked"] = asking.asked(session, full or name, _taken(asks, options), reason)
                if manner is not None:
                    options["how"] = asking.run_options(manner)
            from dr_ctl.cli.render import end  # noqa: PLC0415

            result = function(session, **options)
            raise typer.Exit(end(replace(result, findings=(*result.findings, *session.unclaimed)), session))

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        run.__signature__ = inspect.Signature([*parameters, *every, context])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        app.command(name, epilog=_EPILOG.format(example))(run)
        return function

    return register


def _with(session: Session, options: Everywhere) -> Session:
    """The session with what stood behind the command: that wins over what stood before it."""
    return replace(
        session,
        config=options.config or session.config,
        state_dir=options.state_dir or session.state_dir,
        verbose=options.verbose or session.verbose,
        color=session.color and not options.no_color,
        json=options.json or (options.output == "json" if options.output is not None else session.json),
        quiet=options.quiet or session.quiet,
        warn_exit=options.warn_exit,
    )


def _declared(options: type[DataclassInstance] | None) -> list[inspect.Parameter]:
    """A parameter for each field. The annotations of a class of options are values, not text."""
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=each.type,
        )
        for each in (fields(options) if options is not None else ())
    ]


def _taken(kind: type[T], options: dict[str, Any]) -> T:
    """Make a class of options of what the command line gave, and take it out of the rest."""
    return kind(**{each.name: options.pop(each.name) for each in fields(kind)})
