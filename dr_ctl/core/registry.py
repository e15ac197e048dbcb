"""Classes and modules of the topologies by id, imported only when a topology is named."""

from collections.abc import Iterator
from importlib import import_module
from typing import Generic, TypeVar

from dr_ctl.core.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """`modules` may be added to: a module is registered by its id, and holds what is asked for as `attribute`."""

    def __init__(self, attribute: str, modules: dict[str, str], *, unknown: str) -> None:
        self.modules = modules
        self._attribute, self._unknown = attribute, unknown

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def named(self, topology: str) -> T:
        """UsageError, with the ids that there are, for one that is not registered."""
        if topology not in self.modules:
            *others, last = self.modules
            there = f"{', '.join(others)} and {last}" if others else last
            raise UsageError(f"{self._unknown} {topology}", remedy=f"There are {there}.")
        value: T = getattr(import_module(self.modules[topology]), self._attribute)
        return value
