"""How commands are declared: the options that all of them take, and how a function becomes one.

The common options work before the command and after it; after it wins.
"""

from __future__ import annotations

import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Final

import typer

from dr_ctl import __version__
from dr_ctl.cli.helping import Group
from dr_ctl.cli.options import everywhere, switch
from dr_ctl.cli.session import Session, Time

if TYPE_CHECKING:
    from dr_ctl.application.result import Result


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dr-ctl {__version__}")
        raise typer.Exit


VERSION: Final = switch("version", "--version", "Say which version this is, and end.", is_eager=True, callback=_version)


def group(text: str) -> typer.Typer:
    """Make an empty group of commands."""
    return typer.Typer(cls=Group, rich_markup_mode=None, help=text)


def common(**options: Any) -> None:
    """Move a messaging service between two sites of ActiveMQ brokers: checked, stepwise, undone when it fails."""
    ctx: typer.Context = options["ctx"]
    time: Time = ctx.obj or Time()
    color = not os.environ.get("NO_COLOR")
    session = Session(clock=time.clock, timeouts=time.timeouts, color=color, words=tuple(time.typed))
    ctx.obj = _with(session, options)


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
    asks: Sequence[Parameter] = (),
    changes: Sequence[Parameter] = (),
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function as a command: gives it the session, adds the options that every command takes, and ends with
    its result's exit code. `example` stands at the end of its help, as it is typed. `full` is the command's whole name
    where `app` is a group. The options `asks` become the function's argument `asked`; those of `changes` become its
    argument `how`."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(function, locals=_UNREAD, eval_str=True)
        own = [each for each in signature.parameters.values() if each.name not in ("session", "asked", "how")]
        parameters = [*asks, *own, *changes]
        taken = {each.name for each in parameters}
        every = [each for each in everywhere(before=False) if each.name not in taken]

        def run(ctx: typer.Context, **options: Any) -> None:
            session = _with(ctx.obj.called(full or name), {each.name: options.pop(each.name) for each in every})
            if asks or changes:
                from dr_ctl.cli import asking  # noqa: PLC0415

                request = {each.name: options.pop(each.name) for each in asks}
                how = asking.run_options({each.name: options.pop(each.name) for each in changes})
                if asks:
                    options["asked"] = asking.asked(session, full or name, request, how.reason)
                if changes:
                    options["how"] = how
            from dr_ctl.cli.render import end  # noqa: PLC0415

            result = function(session, **options)
            raise typer.Exit(end(replace(result, findings=(*result.findings, *session.unclaimed)), session))

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        app.command(name, epilog=_EPILOG.format(example))(declaring(run, [*parameters, *every]))
        return function

    return register


def declaring(function: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """The function with these parameters, as typer reads them, beside its context."""
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    function.__signature__ = inspect.Signature([*parameters, context])  # type: ignore[attr-defined]
    function.__annotations__ = {}
    return function


def _with(session: Session, options: Mapping[str, Any]) -> Session:
    """The session with what stood behind the command: that wins over what stood before it."""
    given = defaultdict(lambda: None, options)
    return replace(
        session,
        config=given["config"] or session.config,
        state_dir=given["state_dir"] or session.state_dir,
        verbose=given["verbose"] or session.verbose,
        color=session.color and not given["no_color"],
        json=given["json"] or (given["output"] == "json" if given["output"] is not None else session.json),
        quiet=given["quiet"] or session.quiet,
        warn_exit=given["warn_exit"],
    )
