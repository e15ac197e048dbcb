"""Copies at the peer of a flow whose messages were processed at the serving site, but whose acknowledgement is missing.

A link that loses acknowledgements leaves a copy for each. Copies add up while the site serves, and a failover delivers
them all. Shipped messages that still lie in the site's own queue have a copy too; all other copies were processed. The
count is an upper bound, because confirmations of shipping come late. The sites are not read at the same instant, so the
greatest count of the last looks holds.
"""

from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import NA, Ints, Looks

LOOKS: Final = 5
LEAST_APART_US: Final = 4_000_000
"""Looks that follow each other at once see one delay of a confirmation, and count as one."""


def done_and_there(looks: Looks, name: str, serving: Ints) -> int | None:
    """An upper bound at the last look at that queue, of a flow by its own name. `serving`: the moments of looks that
    saw the site serve. None where no look read both sites."""
    staged = next((row for row, each in enumerate(looks.staged.names) if each[1] == name), None)
    sends = next((row for row, each in enumerate(looks.outflows.names) if each == ("mirror", name)), None)
    queue = looks.place.get(name)
    if staged is None or sends is None or queue is None:
        return None
    there, here = looks.staged.depth[staged], looks.queues.depth[queue]
    out = looks.outflows.depth[sends, looks.whole]
    read = np.flatnonzero((there != NA) & (here != NA) & (out != NA) & np.isin(looks.us[looks.whole], serving))
    last = np.flatnonzero(here != NA)
    if not len(read):
        return None
    copies = np.maximum(0, there[read] - np.maximum(0, here[read] - out[read]))
    since = _acked_since(looks, queue, int(read[-1]), int(last[-1]))
    return None if since is None else int(copies[_last_few(looks.us[looks.whole[read]])].max()) + since


def _last_few(us: Ints) -> slice:
    """As far back as `LOOKS` looks that are apart."""
    rounds = (us[-1] - us) // LEAST_APART_US
    return slice(int(np.flatnonzero((rounds < LOOKS) | (np.arange(len(us)) >= len(us) - LOOKS))[0]), None)


def _acked_since(looks: Looks, queue: int, then: int, now: int) -> int | None:
    """Messages processed since; every one may have lost its acknowledgement."""
    acked, era = looks.queues.acked[queue], looks.era[looks.whole]
    if era[then] != era[now] or acked[then] == NA or acked[now] == NA or acked[now] < acked[then]:
        return None
    return int(acked[now] - acked[then])
