"""What of an outflow were messages that no client had consumed, at its last look: from the queues' counters.

A mixed outflow holds acknowledgements too, and messages whose acknowledgement waits behind them: its depth alone is
several times what would be lost. It is first in, first out: whatever was put in up to the newest look at which no more
had been put in than is shipped by now (the *cut*) is at the other site. So of each queue no more is lost than was sent
to it since then, and no more than lies in it. What was put in since then and is in no queue's counters (a queue that
was not read) counts as lost in full; so do counters that were not read at quite the same instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dr_ctl.rpo.recent import Count


def waiting(flow: Sequence[Count], queues: Iterable[Sequence[Count]], *, mixed: bool) -> int | None:
    """At most so many at the last look of `flow`; `queues` are those that it serves. None where the cut is not known.

    `mixed`: acknowledgements go through the same outflow.
    """
    last, cut = flow[-1], _cut(flow)
    if cut is None or last.added is None or cut.added is None:
        return None
    found, unexplained = 0, last.added - cut.added
    for looks in queues:
        now = looks[-1]
        if now.depth is None:
            return None
        then = next((each for each in reversed(looks) if each.us == cut.us), None)
        sent = _grown(then, now, "added") if now.us == last.us else None
        acked = _grown(then, now, "acked") if now.us == last.us else None
        found += now.depth if sent is None else min(now.depth, sent)
        unexplained -= (sent or 0) + ((acked or 0) if mixed else 0)
    return found + max(0, unexplained)


def _cut(flow: Sequence[Count]) -> Count | None:
    last = flow[-1]
    if last.added is None or last.depth is None:
        return None
    shipped = last.added - last.depth
    told = (each for each in reversed(flow) if each.start == last.start)
    return next((each for each in told if each.added is not None and each.added <= shipped), None)


def _grown(then: Count | None, now: Count, counter: str) -> int | None:
    if then is None or then.start != now.start:
        return None
    before, after = getattr(then, counter), getattr(now, counter)
    return None if before is None or after is None or after < before else after - before
