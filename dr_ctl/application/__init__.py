"""The use-cases: functions that take values and ports and return results. `cli` parses, prints and asks.

A module is loaded when it is named, as in `application.status.check`, so that help and completion stay instant.
"""

# ruff: noqa: F401, I001 - modules that are named for their types
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dr_ctl.application import bundling, deploying, documents, estimates, explaining, history, init
    from dr_ctl.application import (
        installation,
        maintenance,
        monitoring,
        plans,
        readiness,
        rehearsing,
        run,
        status,
        syncing,
    )


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}")
