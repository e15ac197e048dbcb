"""Classes and modules of the topologies by id, imported only when a topology is named."""

from collections.abc import Iterator
from importlib import import_module
from typing import Generic, TypeVar

from dr_ctl.core.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """`modules` has a `module:name` by id, and may be added to."""

    def __init__(self, modules: dict[str, str], *, unknown: str) -> None:
        self.modules = modules
        self._unknown = unknown

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def named(self, topology: str) -> T:
        """Import and return the entry of a topology; raises `UsageError` with the known ids for any other id."""
        if topology not in self.modules:
            *others, last = self.modules
            known = f"{', '.join(others)} and {last}" if others else last
            raise UsageError(f"{self._unknown} {topology}", remedy=f"There are {known}.")
        module, _, name = self.modules[topology].partition(":")
        value: T = getattr(import_module(module), name)
        return value
