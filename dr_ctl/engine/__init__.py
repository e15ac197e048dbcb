"""From a runbook and an observation to a plan, its execution and its journal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dr_ctl.engine import journal, record, runs  # noqa: F401 - for their types


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
