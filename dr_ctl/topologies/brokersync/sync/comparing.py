"""Lists both sites: what only the waiting one holds, and whether anything can be concluded from that."""

from dataclasses import dataclass
from typing import Final

from dr_ctl.topologies.brokersync.sync.ports import Count, Glance, Listed, Primary, Standby, There

RAISE: Final = "compared again soon; where it always is so, raise maxBrowsePageSize above its depth there"
NOTHING: Final = Count(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Copies that were shown, and what the serving site's queue was listed as, None where there is no copy to conclude
    anything of. Where any of the listings may have left out a message, `why_not` says why: nothing follows from it."""

    copies: frozenset[str]
    here: Listed | None
    why_not: str

    @property
    def lacking(self) -> frozenset[str]:
        return self.copies - self.here.ids if self.here is not None else self.copies


def compared(primary: Primary, standby: Standby, queue: str, before: Glance, there: There) -> Comparison:
    """Call it while what is consumed is followed, after a look at the serving site and then one at the waiting site.
    Raises `BrokerError`.

    In this order: a copy is on its way, then at the waiting site; its message leaves the serving site last. A message
    consumed before that look therefore shows in one of the first two places. Messages that the waiting site did not
    ship when it served are no copies. A count is as good as a listing where it says that nothing lies there, as long
    as it was read in that order."""
    way = primary.unshipped(queue, before.to_ship.get(queue, NOTHING))
    own = standby.unshipped(queue, there.unshipped.get(queue, NOTHING))
    copied = standby.listed(queue, there.copies.get(queue, NOTHING) if not way.ids else None)
    copies = (way.ids | copied.ids) - own.ids
    here = primary.listed(queue, None) if copies else None
    cut = [each.why_not for each in (way, own, copied, here) if each is not None and each.whole is None]
    return Comparison(copies, here, f"{'; '.join(cut)}; {RAISE}" if cut else "")
