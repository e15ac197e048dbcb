"""Classes and modules of the topologies by id, imported only when a topology is named."""

from collections.abc import Iterator
from importlib import import_module
from typing import Generic, TypeVar

from dr_ctl.core.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """`modules` may be added to: by an id, a module and the name that what is asked for has in it, `module:name`."""

    def __init__(self, modules: dict[str, str], *, unknown: str) -> None:
        self.modules = modules
        self._unknown = unknown

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def named(self, topology: str) -> T:
        """UsageError, with the ids that there are, for one that is not registered."""
        if topology not in self.modules:
            *others, last = self.modules
            known = f"{', '.join(others)} and {last}" if others else last
            raise UsageError(f"{self._unknown} {topology}", remedy=f"There are {known}.")
        module, _, name = self.modules[topology].partition(":")
        value: T = getattr(import_module(module), name)
        return value
