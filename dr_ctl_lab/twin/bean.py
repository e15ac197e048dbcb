"""A management bean of any broker: attributes and operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl_lab.twin.parts import BrokerError

ILLEGAL: Final = "java.lang.IllegalArgumentException"

Operations = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Fails:
    """The value of an attribute whose read fails with this error."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Bean:
    """A bean; `read` returns its attributes, `offer` its operations by `name(types)`."""

    name: str
    read: Callable[[], Mapping[str, Any]]
    offer: Callable[[], Operations]


def signatures(operations: Operations, name: str) -> Sequence[str]:
    """The signatures of an operation, in brackets, as error messages list them."""
    return [operation.removeprefix(name) for operation in operations if operation.partition("(")[0] == name]
