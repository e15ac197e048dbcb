"""Compares both sites: finds copies at the waiting site of messages that clients of the serving site consumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dr_ctl.topologies.brokersync.sync.ports import Primary, Standby

RAISE: Final = ", or clients took more than came; raise maxBrowsePageSize above its depth there, and see to its memory"


@dataclass(frozen=True, slots=True)
class Residue:
    """Copies to delete, some of which may still have to arrive. `ids` is None where the serving site's messages were
    not seen whole: a lacking message may be there. `why_not` says why nothing or not all was found; `shown` are the
    messages that the browses of the serving site's queue were given."""

    ids: frozenset[str] | None
    why_not: str
    shown: int


def residue(primary: Primary, standby: Standby, queue: str) -> Residue:
    """Call it while what is consumed is followed. Raises `BrokerError`.

    In this order: a copy is on its way, then at the waiting site; its message leaves the serving site last. A message
    consumed before therefore shows in one of the first two places, and a later one is announced. Messages that the
    waiting site did not ship when it served are no copies."""
    on_its_way = primary.unshipped(queue)
    own = standby.unshipped(queue)
    if not own.whole:
        return Residue(None, f"{queue}: a browse of what the waiting site did not ship ended early{RAISE}", 0)
    copies = standby.browse(queue)
    once = primary.missing_from(queue, copies.ids | on_its_way.ids)
    # Twice: a browse leaves out a message now and then that is on its way to a consumer.
    consumed = primary.missing_from(queue, once.ids) if once.whole and once.ids else once
    shown = once.shown + (consumed.shown if consumed is not once else 0)
    if not consumed.whole:
        return Residue(None, f"{queue}: a browse at the serving site ended early{RAISE}", shown)
    cut = [name for name, each in (("its copies on their way", on_its_way), ("its copies", copies)) if not each.whole]
    why_not = f"{queue}: a browse of {' and '.join(cut)} ended early{RAISE}" if cut else ""
    return Residue(consumed.ids - own.ids, why_not, shown)
