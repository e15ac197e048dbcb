"""The finding in place of the history, where a Python package that reads it is missing."""

from dr_ctl.core.findings import found
from dr_ctl.core.machine import without
from dr_ctl.core.model import Finding


def unread(error: ModuleNotFoundError) -> Finding:
    """Raises the error again where it is of no such package."""
    lacking = without(error)
    if lacking is None:
        raise error
    return found("DR-PART-001", f"{lacking}: what the monitor saw is not known here", lacking.remedy)
