"""Completes what is typed: sites of the settings, runs of the state directory, exit codes and findings.

A shell waits for each answer, and a person sees no error there: where nothing can be read, nothing is offered.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import typer

from dr_ctl.cli.session import Session
from dr_ctl.core.errors import DrCtlError


def sites(ctx: typer.Context, incomplete: str) -> list[str]:
    """The sites of the settings file, whatever else is wrong with that."""
    import yaml  # noqa: PLC0415

    from dr_ctl.settings.loader import find  # noqa: PLC0415

    try:
        settings = yaml.safe_load(find(_session(ctx).config).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    named = settings.get("sites") if isinstance(settings, dict) else None
    return _beginning(incomplete, named if isinstance(named, dict) else ())


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The runs that lie in the state directory, the newest first."""
    try:
        past = _session(ctx).past().all()
    except (OSError, DrCtlError):
        return []
    return _beginning(incomplete, [files.name for files in reversed(past)])


def operations(incomplete: str) -> list[str]:
    from dr_ctl.engine.operations import ALL  # noqa: PLC0415

    return _beginning(incomplete, ALL)


def explained(incomplete: str) -> list[str]:
    """What `explain` knows: exit codes by number and by word, and findings."""
    from dr_ctl.application.explaining import findings  # noqa: PLC0415
    from dr_ctl.core.findings import MEANINGS  # noqa: PLC0415

    codes = [word for code in MEANINGS for word in (str(int(code)), code.outcome)]
    return _beginning(incomplete, [*codes, *findings()])


def documented(ctx: typer.Context, incomplete: str) -> list[str]:
    """The commands that have a document, word by word: `runs`, then `list`."""
    from dr_ctl.application.documents import data_types  # noqa: PLC0415

    typed = list(ctx.params.get("words") or ())
    ways = [command.split() for command in data_types()]
    then = [way[len(typed)] for way in ways if way[: len(typed)] == typed and len(way) > len(typed)]
    return _beginning(incomplete, dict.fromkeys(then))


def _session(ctx: typer.Context) -> Session:
    """A session of the options that were typed so far, before the command or behind it."""
    typed = {**(ctx.parent.params if ctx.parent is not None else {}), **{k: v for k, v in ctx.params.items() if v}}
    return Session(config=_path(typed.get("config")), state_dir=_path(typed.get("state_dir")))


def _path(value: object) -> Path | None:
    return Path(str(value)) if value else None


def _beginning(incomplete: str, words: Iterable[object]) -> list[str]:
    return [str(word) for word in words if str(word).startswith(incomplete)]


# By the word that stands for the value.
COMPLETED: Final[Mapping[str, Callable[..., list[str]]]] = {
    "SITE": sites,
    "RUN": runs,
    "OPERATION": operations,
    "CODE|ID": explained,
    "COMMAND": documented,
}
