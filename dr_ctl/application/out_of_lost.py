"""For how long clients were out of a site that was lost: no run begins that time, so looks bound it."""

from datetime import datetime

from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.model import Json, Role
from dr_ctl.core.system import stamp
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.settings.model import Installation


def out_of_lost(
    installation: Installation, lost: str, pairs: list[str], seen_down: datetime | None, let_in: datetime
) -> dict[str, Json]:
    """From the last look that saw the site serve, at most; from the first of the run or the monitor that saw it down or
    closed since then, at least. None of either is null: it is not known."""
    served, gone = _looks(installation, lost, pairs, let_in)
    if seen_down is not None and seen_down <= let_in and (served is None or seen_down > served):
        gone = seen_down if gone is None else min(gone, seen_down)
    return {
        "at_least": None if gone is None else round((let_in - gone).total_seconds(), 3),
        "at_most": None if served is None else round((let_in - served).total_seconds(), 3),
        "last_served": None if served is None else stamp(served),
        "seen_down": None if gone is None else stamp(gone),
    }


def _looks(
    installation: Installation, lost: str, pairs: list[str], let_in: datetime
) -> tuple[datetime | None, datetime | None]:
    """The last look that saw the site serve, and the first after it that saw it serve no more; a look without an answer
    is neither."""
    try:
        from dr_ctl.rpo.history.newest import recent  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

        looks = recent(installation.history, lost, pairs, until_us=micros(let_in))
    except (ModuleNotFoundError, DrCtlError):
        return None, None  # the figure is for the report: the run has ended as it has
    serving = looks.saw(Role.SERVING)
    if not len(serving):
        return None, None
    served_us = int(serving[-1])
    later = [looks.saw(role) for role in (Role.DOWN, Role.STANDBY)]
    gone = [int(each[each > served_us][0]) for each in later if len(each) and each[-1] > served_us]
    return moment(served_us), moment(min(gone)) if gone else None
