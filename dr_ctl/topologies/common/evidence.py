"""The figures of one look, as a journal keeps them: of each site, all its pairs together. Pure."""

from collections.abc import Iterable
from typing import Protocol

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json


class Shipping(Protocol):
    """Figures of one broker about the way to its peer. A figure of None was not read, never zero."""

    @property
    def to_ship(self) -> int | None: ...

    @property
    def unapplied(self) -> int | None: ...

    @property
    def attached(self) -> bool | None: ...


def evidence(looks: Iterable[tuple[str, Shipping | BrokerError]]) -> dict[str, Json]:
    """By site; A broker that did not answer, or was not read, makes the figure of its site unknown."""
    sites: dict[str, list[Shipping | BrokerError]] = {}
    for site, look in looks:
        sites.setdefault(site, []).append(look)
    return {site: _of(mine) for site, mine in sites.items()}


def _of(mine: list[Shipping | BrokerError]) -> dict[str, Json]:
    silent = [each for each in mine if isinstance(each, BrokerError)]
    if silent:
        return {"unknown": str(silent[0])}
    read = [each for each in mine if not isinstance(each, BrokerError)]
    return {
        "outflow": total(each.to_ship for each in read),
        "pending": total(each.unapplied for each in read),
        "attached": every(each.attached for each in read),
    }


def said(count: int | None) -> str:
    """A count in a sentence."""
    return "an unknown number of" if count is None else str(count)


def total(figures: Iterable[int | None]) -> int | None:
    listed = list(figures)
    return None if None in listed else sum(each or 0 for each in listed)


def every(flags: Iterable[bool | None]) -> bool | None:
    """True if all flags hold, False if one does not; returns None where a flag was not read and no other is False."""
    listed = list(flags)
    return None if None in listed and False not in listed else all(listed)
