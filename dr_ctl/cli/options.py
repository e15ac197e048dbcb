"""Declares options by what is typed, as in `--to SITE`: the word for the value says how it is completed. An option that
sets a field of `Spec` or `RunOptions` is declared there.

Where nothing can be read nothing is offered: a shell waits for each answer, and a person sees no error there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from dr_ctl.cli.session import Session
from dr_ctl.core.errors import DrCtlError
from dr_ctl.engine.plan import RunOptions, Spec


def _sites(ctx: typer.Context, incomplete: str) -> list[str]:
    """The sites of the settings file, whatever else is wrong with that."""
    import yaml  # noqa: PLC0415

    from dr_ctl.settings.loader import find  # noqa: PLC0415

    try:
        settings = yaml.safe_load(find(_given(ctx).config).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    named = settings.get("sites") if isinstance(settings, dict) else None
    return _beginning(incomplete, named if isinstance(named, dict) else ())


def _runs(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        past = _given(ctx).past().all()
    except (OSError, DrCtlError):
        return []
    return _beginning(incomplete, [files.name for files in reversed(past)])


def _operations(incomplete: str) -> list[str]:
    from dr_ctl.engine.operations import ALL  # noqa: PLC0415

    return _beginning(incomplete, ALL)


def _explained(incomplete: str) -> list[str]:
    """What `explain` knows: exit codes by number and by word, findings, and the words of the glossary."""
    from dr_ctl.application.explaining import findings, words  # noqa: PLC0415
    from dr_ctl.core.findings import meanings  # noqa: PLC0415

    codes = [word for code in meanings() for word in (str(int(code)), code.outcome)]
    return _beginning(incomplete, [*codes, *findings(), *words()])


def _documented(ctx: typer.Context, incomplete: str) -> list[str]:
    """The commands that have a document, word by word: `runs`, then `list`."""
    from dr_ctl.application.documents import data_types  # noqa: PLC0415

    typed = list(ctx.params.get("words") or ())
    commands = [command.split() for command in data_types()]
    then = [words[len(typed)] for words in commands if words[: len(typed)] == typed and len(words) > len(typed)]
    return _beginning(incomplete, dict.fromkeys(then))


def _given(ctx: typer.Context) -> Session:
    """A session of the options that were typed so far, before the command or behind it."""
    typed = {**(ctx.parent.params if ctx.parent is not None else {}), **{k: v for k, v in ctx.params.items() if v}}
    return Session(config=_path(typed.get("config")), state_dir=_path(typed.get("state_dir")))


def _path(value: object) -> Path | None:
    return Path(str(value)) if value else None


def _beginning(incomplete: str, words: Iterable[object]) -> list[str]:
    return [str(word) for word in words if str(word).startswith(incomplete)]


# By the word that stands for the value.
COMPLETED: Final[Mapping[str, Callable[..., list[str]]]] = {
    "SITE": _sites,
    "RUN": _runs,
    "OPERATION": _operations,
    "CODE|ID|WORD": _explained,
    "COMMAND": _documented,
}

FIELDS: Final = {
    member.name: member.metadata for member in (*fields(RunOptions), *fields(Spec)) if "typed" in member.metadata
}
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
    """The options that set these fields of `Spec` or `RunOptions`."""
    return tuple(switch(name, FIELDS[name]["typed"], FIELDS[name]["help"]) for name in names)


TO: Final = parameter("to", str, option("--to SITE", "The site that shall serve."))
SITE: Final = parameter("site", str, argument("SITE"))
LOST: Final = parameter("site", str, argument("SITE", "The lost site that is back."))

LINK: Final = (SITE, switch("timeout_s", "--timeout T", "How long the link may take to attach, as in 30s."))
NO_DRAIN: Final = (switch("timeout_s", "--timeout T", "For the drain of other commands; this one has none."),)
STEP: Final = (SITE, *NO_DRAIN, *of("queues"))
DRAIN: Final = (TO, *of("timeout_s", "accept_difference", "accept_duplicates", "queues"))
MOVE: Final = (
    TO,
    *of("timeout_s", "max_outage_s", "cut_in_flight", "accept_difference", "accept_duplicates", "queues"),
)
FAILOVER: Final = (TO, *of("timeout_s", "accept_loss", "accept_duplicates", "presume_down", "silent_since"))
REINSTATE: Final = (LOST, *of("timeout_s", "accept_duplicates"))
PLAN: Final = (
    parameter("operation", str, argument("OPERATION", "swapover, failover, failback, reinstate")),
    parameter("site", str | None, argument("[SITE]", "The site to serve, or to reinstate."), None),
    switch("to", "--to SITE", "The same."),
    *of("timeout_s", "max_outage_s", "cut_in_flight", "accept_difference", "queues", "expect_serving"),
    *of("accept_loss", "accept_duplicates", "presume_down", "silent_since", "reason"),
)
# How any command that may change a broker is run; one that has steps; one that carries out a whole plan.
CHANGE: Final = of("yes", "dry_run", "break_lock", "reason", "expect_serving")
STEPWISE: Final = (*CHANGE, *of("step"))
WHOLE: Final = (*STEPWISE, *of("saved"))
AT: Final = (*WHOLE, *of("at"))  # of a planned move, which may wait for its moment


FORMS: Final = ("text", "json", "yaml")  # what `--output` of any command may be


def everywhere(*, before: bool, forms: Sequence[str] = ("wide", "name")) -> list[Parameter]:
    """The first four work before the command as well, and help shows them there. `forms`: outputs of this one alone."""
    first = {"hidden": not before}
    every = "|".join((*FORMS, *forms))
    text = "Text, or one document as JSON or YAML; wide: more columns; name: names alone."
    output = typer.Option("--output", "-o", metavar=every, help=text if forms else text.partition(";")[0] + ".")
    return [
        switch("config", "--config FILE", "The settings file.", **first),
        switch("state_dir", "--state-dir DIR", "Where runs are kept.", **first),
        switch("verbose", "--verbose", "Say the cause of an error.", **first),
        switch("no_color", "--no-color", "Plain text, as with NO_COLOR.", **first),
        parameter("output", Literal[*FORMS, *forms] | None, output, None),
        switch("json", "--json", "Short for --output json."),
        switch("quiet", "--quiet", "No progress on standard error."),
        *(
            ()
            if before
            else (switch("warn_exit", "--warn-exit", "End with 30 instead of 0 where there are warnings."),)
        ),
    ]
