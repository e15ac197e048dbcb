"""Commands, files and secrets that the settings name, each with its place in them."""

from collections.abc import Iterator, Mapping, Sequence

from dr_ctl.settings.model import Settings
from dr_ctl.settings.parts import Part, Secret


def commands(settings: Settings) -> Iterator[tuple[str, Sequence[str]]]:
    """The words of each command, with its place."""
    for where, part in _parts(settings, ""):
        for key in part.commands:
            if (words := getattr(part, key)) is not None:
                yield f"{where}.{key}", words


def files(settings: Settings) -> Iterator[tuple[str, str]]:
    """The files and folders that are kept beside the settings, with their places: none that only the operators' host
    has, as keys and passwords."""
    for where, part in _parts(settings, ""):
        for key in part.files:
            if (path := getattr(part, key)) is not None:
                yield f"{where}.{key}".removeprefix("."), path


def secrets(settings: Settings) -> Iterator[tuple[str, Secret]]:
    for where, part in _parts(settings, ""):
        if isinstance(part, Secret):
            yield where, part


def _parts(value: object, where: str) -> Iterator[tuple[str, Part]]:
    """Every part of the settings, with the keys that lead to it; an item of a list is called by its name."""
    if isinstance(value, Part):
        yield where, value
        for key, inner in value:
            yield from _parts(inner, f"{where}.{key}" if where else key)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _parts(inner, f"{where}.{key}")
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from _parts(inner, f"{where}.{getattr(inner, 'name', number)}")
