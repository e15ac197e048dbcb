"""The command line: arguments in, one result out as text or JSON, exit code. Modules are loaded when they are named."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dr_ctl.cli import following, output, people, plans, rpo, screen, show  # noqa: F401 - for their types


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
