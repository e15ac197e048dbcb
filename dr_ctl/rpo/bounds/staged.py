"""What lies at the peer of a flow and was done at the serving site: copies that lack their acknowledgement.

A way between the sites that loses acknowledgements leaves a copy for each, for as long as the site serves: they add up,
and a failover delivers them all. What lies in the site's own queue and is shipped lies there too; the rest was done: at
most so many, for confirmations of what was shipped come late, which makes it more, never less. The two sites are not
read at quite the same instant: so the most of the last looks counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dr_ctl.rpo.history.newest import Count

LOOKS: Final = 5


def done_and_there(
    peer: Sequence[Count], queue: Sequence[Count], sends: Sequence[Count], serving: Collection[int]
) -> int | None:
    """At most so many at the last look of `queue`; `peer` is what lies at the other site, `sends` the outflow of
    messages, `serving` are the moments of the looks that saw the site serve. None where no look read all of them."""
    lying = {each.us: each for each in queue}
    to_ship = {each.us: each.depth for each in sends}
    found, last = [], None
    for look in peer:
        here, out = lying.get(look.us), to_ship.get(look.us)
        if look.us not in serving or look.depth is None or here is None or here.depth is None or out is None:
            continue
        found.append(max(0, look.depth - max(0, here.depth - out)))
        last = here
    since = _acked_since(last, queue[-1]) if last is not None else None
    return None if since is None else max(found[-LOOKS:]) + since


def _acked_since(then: Count, now: Count) -> int | None:
    """Each of them may have lost its acknowledgement."""
    if then.start != now.start or then.acked is None or now.acked is None or now.acked < then.acked:
        return None
    return now.acked - then.acked
