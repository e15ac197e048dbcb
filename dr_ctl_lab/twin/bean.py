"""A management bean of any broker: attributes and operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl_lab.twin.parts import BrokerSaysNo

ILLEGAL: Final = "java.lang.IllegalArgumentException"

Operations = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Fails:
    """In the place of an attribute that cannot be read now."""

    error: BrokerSaysNo


@dataclass(frozen=True, slots=True)
class Bean:
    """A bean with its present attributes, and operations by `name(types)`; both are made on request."""

    name: str
    read: Callable[[], Mapping[str, Any]]
    offer: Callable[[], Operations]


def signatures(operations: Operations, name: str) -> Sequence[str]:
    """The signatures of an operation, in brackets, as an error tells them."""
    return [operation.removeprefix(name) for operation in operations if operation.partition("(")[0] == name]
