"""Converts results to JSON documents and back. The class of a result defines both, and its JSON Schema.

Pydantic understands the metadata that `key` gives a field. Only commands that make schemas or read documents back load
pydantic; writing a document does not need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, fields
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    derived = property
else:

    class derived(property):  # noqa: N801 - as `property`
        """A property that the document has after the fields."""


T = TypeVar("T")
HIDDEN: Final[Mapping[str, Any]] = {"exclude": True}  # of a field that the document does not have
MOMENT: Final[Mapping[str, Any]] = {"description": "ISO 8601, in UTC"}


def stamp(at: datetime) -> str:
    """Write a time as in every file and document of dr-ctl: ISO 8601, UTC, milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def key(name: str | None = None, **how: Any) -> dict[str, Any]:
    """Make the metadata of a field that stands in the document otherwise than under its own name, by its own value.

    `description` is for the schema, as is `shape`, the class of a value that is a document already. `of` names the
    attribute that is written in the field's place. `blank` writes an empty value as null, `digits` rounds a number,
    `count` writes how many items there are. `optional` leaves the key out for null; `flat` writes the keys of the value
    in the place of the key.
    """
    return how if name is None else {"alias": name, **how}


def option(typed: str, text: str, default: Any = None, **how: Any) -> Any:
    """Declare a field that an option sets: the option as `--timeout T`, its help, and metadata as in `key`."""
    initial: dict[str, Any] = {"default_factory" if callable(default) else "default": default}
    return field(**initial, metadata={"typed": typed, "help": text, **how})


def optional(description: str | None = None, **how: Any) -> Any:
    """Declare a field that is None by default, and has no key in the document then."""
    about = {} if description is None else {"description": description}
    return field(default=None, metadata=key(optional=True, **about, **how))


@cache
def _keys(of: Any) -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """Return the attributes of a class that its document has, each with its key and its metadata."""
    listed = [(member.name, member.metadata) for member in fields(of) if not member.metadata.get("exclude")]
    shown = ((how.get("of", name), how.get("alias", name), how) for name, how in listed)
    return (*shown, *((name, name, {}) for name in derived_of(of)))


def derived_of(of: type) -> Mapping[str, property]:
    return {name: item for base in reversed(of.__mro__) for name, item in vars(base).items() if type(item) is derived}


def document(value: object) -> Any:
    """Convert a value to JSON types."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {document(name): document(item) for name, item in value.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [document(item) for item in value]
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, Path):
        return str(value)
    made: dict[str, Any] = {}
    of: Any = type(value)
    for attribute, name, how in _keys(of):
        item = getattr(value, attribute)
        if "count" in how:
            item = len(item)
        elif "blank" in how:
            item = item or None
        elif "digits" in how and item is not None:
            item = round(item, how["digits"])
        if item is None and "optional" in how:
            continue
        if "flat" in how:
            made |= document(item)
        else:
            made[name] = document(item)
    return made


@cache
def _adapter(of: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only reading back needs it

    return TypeAdapter(of)


def read(kind: type[T], row: object) -> T:
    """Make the value of a document; raises ValueError with the reasons if it does not fit."""
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    of: Any = kind
    try:
        made: T = _adapter(of).validate_python(row)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
        raise ValueError("; ".join(wrong)) from error
    return made


def read_file(kind: type[T], path: Path) -> T | None:
    """Make the value of a file; return None without a file, or if it does not fit."""
    try:
        return read(kind, of_file(path))
    except ValueError:
        return None


# The following functions read JSON of unknown origin: an absent or odd value is empty or None, never zero.


def of_file(path: Path) -> Mapping[str, Any] | None:
    """Read the JSON object of a file; return None without a file, or without an object in it."""
    try:
        row = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """Return a finite number as it is, and None for anything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < float("inf") else None


def moment(value: object) -> datetime | None:
    """Read an ISO 8601 time; a time without a zone is in UTC."""
    try:
        at = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
