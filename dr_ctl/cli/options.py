"""Declares options as typed, such as `--to SITE`: the word for the value chooses the completion. An option that sets a
field of `Spec` or `RunOptions` is declared there. The typed options become a `Spec`; a malformed option is a usage
error with its remedy.

Completion of unreadable settings offers nothing: a shell waits for each answer, and a person sees no error there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, time, timedelta
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from dr_ctl import application
from dr_ctl.cli.session import Session
from dr_ctl.core.document import stamp
from dr_ctl.core.errors import DrCtlError, UsageError
from dr_ctl.core.findings import meanings
from dr_ctl.core.notation import seconds
from dr_ctl.core.system import system
from dr_ctl.engine import operations
from dr_ctl.engine.operations import ALL, AT_SOURCE, KEEP_ASIDE, PUT_BACK
from dr_ctl.engine.plan import Accepted, RunOptions, Spec


def _sites(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete sites of the settings file, even of an invalid one."""
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


def _explained(incomplete: str) -> list[str]:
    """Complete exit codes by number and by word, findings, and the words of the glossary."""
    codes = [word for code in meanings() for word in (str(int(code)), code.outcome)]
    return _beginning(incomplete, [*codes, *application.explaining.findings(), *application.explaining.words()])


def _documented(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete commands that have a document, word by word: `runs`, then `list`."""
    typed = list(ctx.params.get("words") or ())
    commands = [command.split() for command in application.documents.data_types()]
    then = [words[len(typed)] for words in commands if words[: len(typed)] == typed and len(words) > len(typed)]
    return _beginning(incomplete, dict.fromkeys(then))


def _given(ctx: typer.Context) -> Session:
    """Make a session from the options typed so far, before or after the command."""
    typed = {**(ctx.parent.params if ctx.parent is not None else {}), **{k: v for k, v in ctx.params.items() if v}}
    return Session(config=_path(typed.get("config")), state_dir=_path(typed.get("state_dir")))


def _path(value: object) -> Path | None:
    return Path(str(value)) if value else None


def _beginning(incomplete: str, words: Iterable[object]) -> list[str]:
    return [str(word) for word in words if str(word).startswith(incomplete)]


# The completions by the word for the value.
COMPLETED: Final[Mapping[str, Callable[..., list[str]]]] = {
    "SITE": _sites,
    "RUN": _runs,
    "OPERATION": lambda incomplete: _beginning(incomplete, ALL),
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
    """Declare an optional option; an option without a value is on or off."""
    kind = _KINDS.get(typed.partition(" ")[2], str | None)
    return parameter(name, kind, option(typed, text, **how), False if kind is bool else None)


def options_for(*names: str) -> tuple[Parameter, ...]:
    """Return the options that set these fields of `Spec` or `RunOptions`."""
    return tuple(switch(name, FIELDS[name]["typed"], FIELDS[name]["help"]) for name in names)


TO: Final = parameter("to", str, option("--to SITE", "The site that shall serve."))
SITE: Final = parameter("site", str, argument("SITE"))
LOST: Final = parameter("site", str, argument("SITE", "The lost site that is back."))

LINK: Final = (SITE, switch("timeout_s", "--timeout T", "How long the link may take to attach, as in 30s."))
NO_DRAIN: Final = (switch("timeout_s", "--timeout T", "No effect here: it limits the drain of other commands."),)
STEP: Final = (SITE, *NO_DRAIN, *options_for("queues"))
_OF_DRAIN: Final = options_for("timeout_s", "accept_difference", "accept_duplicates", "queues")
DRAIN: Final = (TO, *_OF_DRAIN)
VERIFY: Final = (switch("to", "--to SITE", "The site that shall serve; default: the standby."), *_OF_DRAIN)
MOVE: Final = (
    TO,
    *options_for("timeout_s", "max_outage_s", "cut_in_flight", "accept_difference", "accept_duplicates", "queues"),
)
FAILOVER: Final = (TO, *options_for("timeout_s", "accept_loss", "accept_duplicates", "presume_down", "silent_since"))
REINSTATE: Final = (LOST, *options_for("timeout_s", "accept_duplicates"))
PLAN: Final = (
    parameter("operation", str, argument("OPERATION", "swapover, failover, failback, reinstate")),
    parameter("site", str | None, argument("[SITE]", "The site to serve, or to reinstate."), None),
    switch("to", "--to SITE", "The same as [SITE]."),
    *options_for("timeout_s", "max_outage_s", "cut_in_flight", "accept_difference", "queues", "expect_serving"),
    *options_for("accept_loss", "accept_duplicates", "presume_down", "silent_since", "reason"),
)
# Options of commands that may change a broker, that have steps, and that carry out a whole plan.
CHANGE: Final = options_for("yes", "dry_run", "break_lock", "reason", "expect_serving")
STEPWISE: Final = (*CHANGE, *options_for("step"))
WHOLE: Final = (*STEPWISE, *options_for("saved"))
AT: Final = (*WHOLE, *options_for("at"))  # a planned move may wait for its moment


FORMS: Final = ("text", "json", "yaml")  # every command has these outputs


def everywhere(*, before: bool, forms: Sequence[str] = ("wide", "name")) -> list[Parameter]:
    """Return the common options. The first four work before the command too, where help shows them. `forms` are further
    outputs of the command."""
    first = {"hidden": not before}
    every = "|".join((*FORMS, *forms))
    text = "Text, or one document as JSON or YAML; wide: more columns; name: names only."
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


_LOSS: Final = ("accept_loss", "presume_down", "silent_since")
_OTHERS: Final = {
    operations.FAILOVER: ("max_outage_s", "cut_in_flight"),
    operations.REINSTATE: ("max_outage_s", *_LOSS),
}
"""`plan` ignores these options for these operations."""


def asked_of(session: Session, operation: str, given: Mapping[str, Any], reason: str | None) -> Spec:
    """Make the request out of the options; raises `UsageError` for a malformed option."""
    operation = given.get("operation", operation)
    if "operation" in given and operation not in ALL:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(ALL)}.")
    without = ("operation", "to", "site", *(_OTHERS.get(operation, _LOSS) if "operation" in given else ()))
    read = {name: _read(name, value) for name, value in given.items() if name not in without}
    options = {"reason": reason} | read
    for name, reason_for in (
        ("presume_down", "why that site is taken for down"),
        ("silent_since", "how that moment is known"),
    ):
        if options.get(name) is not None and not options["reason"]:
            raise UsageError(f"--{name.replace('_', '-')} needs --reason", remedy=f"Say {reason_for}: --reason TEXT.")
    if operation in (operations.SWAPOVER, operations.FAILBACK) and options["max_outage_s"] is None:
        objectives = session.installation().settings.objectives
        options["max_outage_s"] = objectives.recovery if objectives is not None else None
    return Spec(operation, _target(session, operation, given), **options)


def _read(name: str, value: Any) -> Any:
    option, _, word = FIELDS[name]["typed"].partition(" ")
    match word:
        case "QUEUE=N":
            return _differences(option, value or ())
        case "N|unknown" if value is not None:
            return _accepted(option, value)
        case "T" if value is not None and name == "silent_since":
            return stamp(moment(option, value))
        case "T" if value is not None:
            return seconds_of(option, value)
        case _:
            return value


def _target(session: Session, operation: str, given: Mapping[str, str | None]) -> str:
    """Return the site that shall serve: the other site for a step at the named site; "" without a name."""
    to, site = given.get("to"), given.get("site")
    if to is not None and site is not None and to != site:
        raise UsageError(f"--to {to} and {site}: two sites were named", remedy="Name one of them.")
    if (named := to or site) is None:
        if "site" in given:
            raise UsageError("no site was named", remedy="Say --to SITE.")
        return ""
    if operation not in AT_SOURCE:
        return named
    session.installation().must_know(named)
    return session.installation().other(named)


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """Make the options of a run; raises `UsageError` if they contradict each other, or lack a reason."""
    how = RunOptions(**given)
    if given.get("at") is not None:
        how = replace(how, at=moment("--at", given["at"], ahead=True))
    if how.step and (how.at is not None or how.yes):
        other = "--yes asks nothing" if how.at is None else "--at waits for nobody"
        raise UsageError(f"--step asks before each step, {other}", remedy="Leave one of them out.")
    if how.break_lock and not how.reason:
        remedy = "Say why the other run is certain to be gone: --reason TEXT."
        raise UsageError("--break-lock needs --reason", remedy=remedy)
    return how


def settling(session: Session, how: RunOptions, site: str | None, queues: str | None, *, put_back: bool) -> Spec:
    """Make the request of `sync --settle`; raises `UsageError` without a site, or for a change without a reason."""
    if site is None:
        raise UsageError("--settle names no site", remedy="Say --site SITE: the site with the copies.")
    if how.reason is None and not how.dry_run:
        raise UsageError("--settle needs --reason", remedy="Say what you know of them: --reason TEXT.")
    operation = PUT_BACK if put_back else KEEP_ASIDE
    return asked_of(session, operation, {"site": site, "queues": queues}, how.reason)


def moment(option: str, value: str, *, ahead: bool = False) -> datetime:
    """Read a moment of the past, or of the time `ahead`: a date, a time within 24 hours, or a duration from now; in UTC
    without a zone. Raises `UsageError`."""
    now, day = system().now(), timedelta(days=1 if ahead else -1)
    with suppress(ValueError):
        if (from_now := timedelta(seconds=seconds(value))) or not ahead:
            return now + from_now * (1 if ahead else -1)
        raise UsageError(f"{option} {value}: is over", remedy=f"It is {stamp(now)} now.")
    with suppress(ValueError):
        clock = time.fromisoformat(value)
        today = datetime.combine(now.astimezone(clock.tzinfo or UTC).date(), clock, clock.tzinfo or UTC)
        return (today if (today > now) is ahead else today + day).astimezone(UTC)
    try:
        at = datetime.fromisoformat(value.removesuffix(" UTC"))  # as texts show it
    except ValueError as problem:
        which = "in ten minutes" if ahead else "for ten minutes ago"
        remedy = f"As in {option} 09:15 or 2026-11-21T09:15:00Z, both in UTC, or {option} 10m {which}."
        raise UsageError(f"{option} {value}: neither a moment nor a duration", remedy=remedy) from problem
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if (at > now) is not ahead:
        lies = "is over" if ahead else "lies in the future"
        raise UsageError(f"{option} {value}: {lies}", remedy=f"It is {stamp(now)} now.")
    return at.astimezone(UTC)


def seconds_of(option: str, value: str) -> float:
    """Read the duration of an option; raises `UsageError`."""
    try:
        return seconds(value)
    except ValueError as problem:
        raise UsageError(f"{option}: {problem}", remedy=f"As in {option} 90s.") from problem


def _accepted(option: str, value: str) -> Accepted:
    if value == "unknown":
        return "unknown"
    if not value.isdecimal():
        raise UsageError(f"{option} {value}: not a number", remedy=f"As in {option} 500, or unknown.")
    return int(value)


def _differences(option: str, values: Sequence[str]) -> dict[str, int]:
    accepted: dict[str, int] = {}
    for value in values:
        queue, equals, number = value.rpartition("=")
        if not (equals and queue and number.isdecimal()):
            raise UsageError(f"{option} {value}: not QUEUE=N", remedy=f"As in {option} orders.in=3.")
        if accepted.setdefault(queue, int(number)) != int(number):
            raise UsageError(f"{option} {value}: {queue} was named with another number", remedy="Name it once.")
    return accepted
