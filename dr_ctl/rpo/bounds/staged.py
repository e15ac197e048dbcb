"""Copies at the peer of a flow whose messages were processed at the serving site, but whose acknowledgement is missing.

A link that loses acknowledgements leaves a copy for each. Copies add up while the site serves, and a failover delivers
them all. Shipped messages that still lie in the site's own queue have a copy too; all other copies were processed. The
count is an upper bound, because confirmations of shipping come late. The sites are not read at the same instant, so the
greatest count of the last looks holds.
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
    """An upper bound at the last look of `queue`. `peer` counts the copies at the other site, `sends` the outflow of
    messages, `serving` lists the moments of looks that saw the site serve. None where no look read all of them."""
    lying = {each.us: each for each in queue}
    to_ship = {each.us: each.depth for each in sends}
    copies, last = [], None
    for look in peer:
        here, out = lying.get(look.us), to_ship.get(look.us)
        if look.us not in serving or look.depth is None or here is None or here.depth is None or out is None:
            continue
        copies.append(max(0, look.depth - max(0, here.depth - out)))
        last = here
    since = _acked_since(last, queue[-1]) if last is not None else None
    return None if since is None else max(copies[-LOOKS:]) + since


def _acked_since(then: Count, now: Count) -> int | None:
    """Messages processed since; every one may have lost its acknowledgement."""
    if then.start != now.start or then.acked is None or now.acked is None or now.acked < then.acked:
        return None
    return now.acked - then.acked
