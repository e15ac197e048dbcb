"""Declares commands, with a help that groups them by purpose, in whole sentences.

The common options work before the command and after it; after it wins. Commands of other packages are found by entry
points of the group `dr_ctl.commands`, when one of them is called; their help texts stand here, as help must be instant.
"""

import inspect
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter
from textwrap import TextWrapper
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command

from dr_ctl import __version__, cli
from dr_ctl.application.result import Result, of_error
from dr_ctl.cli.options import FORMS, asked_of, everywhere, run_options, switch
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import NO_ROOM, OF_MACHINE, DrCtlError, EnvironmentFault, UsageError
from dr_ctl.core.findings import meanings
from dr_ctl.core.machine import parts, without
from dr_ctl.core.model import ExitCode, Finding, Severity

TextWrapper.wordsep_re = TextWrapper.wordsep_simple_re  # help, which typer wraps, breaks no option at its hyphens
GROUP: Final = "dr_ctl.commands"
TEXTS: Final = {
    "lab": "Throw-away real brokers on this machine, faults, and traffic with a ledger.",
    "demo": "The main job on two brokers: a swapover, a failover and a failback under load; the ledger judges each.",
}
SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Inspect (nothing is changed)": (
        *("status", "validate", "check", "verify", "plan", "plan approve", "rpo"),
        *("monitor", "maintenance", "runs", "history", "explain", "schema"),
    ),
    "Move the service": ("swapover", "failback"),
    "A site is lost": ("failover", "reinstate", "escalate"),
    "One step at a time": ("quiesce", "fence", "drain", "activate", "unfence", "link", "trim"),
    "Go on, or back": ("resume", "abort"),
    "Keep a Classic standby clean": ("sync",),
    "Prepare and practise": ("init", "rehearse", "runbook", "lab", "demo"),
}
UsageErrors: Final[Any] = typer.BadParameter.__base__  # which typer does not export
_WHOLE: Final = 10_000  # characters: no first sentence is longer


def added(name: str) -> typer.Typer | None:
    """Load a command, or a group of commands, that an installed package adds under that name, if any."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - importing takes a fifth of a short command's time

    for entry_point in entry_points(group=GROUP, name=name):
        commands: typer.Typer = entry_point.load()
        return commands
    return None


class Argument(TyperArgument):
    """An argument that help shows as it is declared: without the type of Python, and brackets once."""

    def display_type_rich(self, ctx: Any) -> None:
        del ctx

    def _usage_display_name(self) -> str:
        return self.display_name_raw


class Command(TyperCommand):
    """A command that is named in all its usage errors."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.__class__ = Argument

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageErrors as error:
            error.ctx = error.ctx or ctx
            raise


class Group(TyperGroup):
    """A group that lists its commands in whole sentences, and without a command shows its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_bare = not args and not ctx.resilient_parsing and not getattr(ctx.obj, "json", False)
        return super().parse_args(ctx, ["--help"] if is_bare else args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._rows().items()))

    def _rows(self) -> dict[str, str]:
        return {name: command.get_short_help_str(_WHOLE) for name, command in self.commands.items()}


class RootGroup(Group):
    """The command line as a whole: commands by purpose, with those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *TEXTS]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two = " ".join(args[:2])  # `plan approve` is a command beside `plan`
        command = super().get_command(ctx, two) if len(args) > 1 else None  # no other package is asked
        return super().resolve_command(ctx, args) if command is None else (two, command, args[2:])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or (commands := added(cmd_name)) is None:
            return own
        return get_command(commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        rows = self._rows() | TEXTS
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, rows[name]) for name in names if name in rows])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        del ctx
        with formatter.section("Exit codes (`dr-ctl explain CODE` says what to do)"):
            formatter.write_dl([(str(int(code)), meaning.brief) for code, meaning in meanings().items()])


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dr-ctl {__version__}\n{', '.join(parts())}")
        raise typer.Exit


VERSION: Final = switch(
    "version", "--version", "Show the versions of dr-ctl, Python, PySpark and Java.", is_eager=True, callback=_version
)


def group(name: str | None, text: str) -> typer.Typer:
    """Make an empty group of commands; without a name for a command alone."""
    return typer.Typer(name=name, cls=Group, rich_markup_mode=None, help=text)


def common(**options: Any) -> None:
    """Move a messaging service between two sites of ActiveMQ brokers: checked, stepwise, undone when it fails."""
    ctx: typer.Context = options["ctx"]
    ctx.obj = _with(replace(ctx.obj or Session(), color=not os.environ.get("NO_COLOR")), options)


# The first line keeps the lines as they are.
_EPILOG = "\b\nExample:\n  dr-ctl {}\n\n\b\nHere too: --config, --state-dir, --verbose, --no-color (`dr-ctl --help`)."
# Parameters that are no options: help must not load these types.
_UNREAD = dict.fromkeys(("Session", "Spec", "RunOptions", "Result"), object)


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    asks: Sequence[Parameter] = (),
    changes: Sequence[Parameter] = (),
    forms: Sequence[str] = (),
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function as a command. It gets the session, has the common options too, and ends with the exit code of
    the function's result. The help ends with `example`, as typed. The options `asks` become the function's
    argument `asked`, the options `changes` its argument `how`, and the switches of its argument `does` the names of
    those that are on. `forms` are further outputs of the command: `wide`, `name`."""
    whole = f"{app.info.name} {name}" if app.info.name else name

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(function, locals=_UNREAD, eval_str=True)
        declared = [item for item in signature.parameters.values() if item.name not in ("session", "asked", "how")]
        switches = [switch for item in declared if item.name == "does" for switch in item.annotation.__metadata__[0]]
        own = (option for item in declared for option in (switches if item.name == "does" else (item,)))
        parameters = [*asks, *own, *changes]
        taken = {parameter.name for parameter in parameters}
        shared = [parameter for parameter in everywhere(before=False, forms=forms) if parameter.name not in taken]

        def run(ctx: typer.Context, **options: Any) -> None:
            session = _with(
                replace(ctx.obj, command=whole), {parameter.name: options.pop(parameter.name) for parameter in shared}
            )
            acts = bool(changes) and not options.get("dry_run")
            try:
                _refuse_form(session.form, whole, (*FORMS, *forms))
                if asks or changes:
                    request = {parameter.name: options.pop(parameter.name) for parameter in asks}
                    how = run_options({parameter.name: options.pop(parameter.name) for parameter in changes})
                    options |= {"asked": asked_of(session, whole, request, how.reason)} if asks else {}
                    options |= {"how": how} if changes else {}
                if switches:
                    options["does"] = [
                        f"--{item.name.replace('_', '-')}" for item in switches if options.pop(item.name)
                    ]
                result = function(session, **options)
                result = replace(result, findings=(*result.findings, *session.unclaimed))
            except Exception as error:  # noqa: BLE001 - the outermost edge: a defect still ends with a document
                if isinstance(error, UsageError) and error.remedy is UsageError.remedy:
                    error.remedy = f"See `dr-ctl {whole} --help`."
                result = failed(error, verbose="--verbose" in session.words)
                session = replace(session, json=session.json or wants_json(session.words))
            raise typer.Exit(cli.output.end(result, session, changes=acts))

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        app.command(name, cls=Command, epilog=_EPILOG.format(example))(declaring(run, [*parameters, *shared]))
        return function

    return register


def _refuse_form(form: str, command: str, known: Sequence[str]) -> None:
    """Refuse, before anything is done, an output form that this command does not have."""
    if form not in known:
        raise UsageError(f"`{command}` has no output `{form}`", remedy=f"One of {', '.join(known)}.")


def failed(error: Exception, *, verbose: bool) -> Result:
    if verbose:
        import traceback  # noqa: PLC0415 - only --verbose needs it

        traceback.print_exc()
    if isinstance(error, ModuleNotFoundError):
        error = without(error) or error
    if isinstance(error, OSError) and error.errno in OF_MACHINE:
        full = error.errno in NO_ROOM
        text = f"{error.filename or 'a file'}{' cannot be written' if full else ''}: {error.strerror or error}"
        remedy = "Free some space on that disk and run the same command again." if full else None
        error = EnvironmentFault(text, remedy=remedy)
    if isinstance(error, DrCtlError):
        return of_error(error)
    text = f"a defect in dr-ctl: {type(error).__name__}: {error}"
    remedy = "Run again with --verbose and report it; `dr-ctl status` shows the state of both sites."
    return Result(ExitCode.INTERNAL, text, (Finding("DR-INTERNAL", Severity.ERROR, text, remedy),))


def wants_json(words: Sequence[str]) -> bool:
    """Say whether a document is asked for, as far as can be seen without parsing."""
    chosen = {("--output", "json"), ("-o", "json")} & {*itertools.pairwise(words)}
    return "--json" in words or "--output=json" in words or bool(chosen)


def declaring(function: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """Give a function these parameters, as typer reads them, beside its context."""
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    function.__signature__ = inspect.Signature([*parameters, context])  # type: ignore[attr-defined]
    function.__annotations__ = {}
    return function


def _with(session: Session, options: Mapping[str, Any]) -> Session:
    """Add options to a session: the options after the command win over those before it."""
    given = defaultdict(lambda: None, options)
    form = "json" if given["json"] else given["output"] or session.form
    return replace(
        session,
        config=given["config"] or session.config,
        state_dir=given["state_dir"] or session.state_dir,
        verbose=given["verbose"] or session.verbose,
        color=session.color and not given["no_color"],
        form=form,
        json=form == "json",
        quiet=given["quiet"] or session.quiet,
        warn_exit=given["warn_exit"],
    )


# Every command inherits the options of help.
app = typer.Typer(
    cls=RootGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(declaring(common, [*everywhere(before=True), VERSION]))
