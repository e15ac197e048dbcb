"""What lay in an outflow at its last look, from the queues' counters: unconsumed messages, and acknowledgements.

A mixed outflow holds both, and messages whose acknowledgement waits behind them: its depth alone is several times what
would be lost. It is first in, first out: whatever was put in up to the newest look at which no more had been put in
than is shipped by now (the *cut*) is at the other site. So of each queue no more is lost than was sent to it since
then, and no more than lies in it; and no more comes twice than was acknowledged since then. What was put in since then
and is in no queue's counters (a queue that was not read) counts in full as either; so do counters that were not read at
quite the same instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dr_ctl.rpo.history.newest import Count

UNEXPLAINED: Final = 0.01
"""Counters are not read at quite the same instant: so small a share of some minutes is no other queue."""


def unconsumed(flow: Sequence[Count], queues: Iterable[Sequence[Count]], *, mixed: bool) -> int | None:
    """Messages: at most so many at the last look of `flow`; `queues` are those that it serves. None where the cut is
    not known.

    `mixed`: acknowledgements go through the same outflow.
    """
    since = _since_cut(flow, queues)
    if since is None:
        return None
    found, unexplained = 0, since.put
    for now, sent, acked in since.told:
        if now.depth is None:
            return None
        found += now.depth if sent is None else min(now.depth, sent)
        unexplained -= (sent or 0) + ((acked or 0) if mixed else 0)
    return found + max(0, unexplained)


def unshipped_acks(flow: Sequence[Count], queues: Iterable[Sequence[Count]]) -> int | None:
    """Acknowledgements in a mixed outflow: at most so many at its last look. None where the cut is not known."""
    since = _since_cut(flow, queues)
    if since is None:
        return None
    acks = sum(acked or 0 for _, _, acked in since.told)
    return acks + max(0, since.put - acks - sum(sent or 0 for _, sent, _ in since.told))


def is_explained(flow: Sequence[Count], queues: Sequence[Sequence[Count]], counters: Sequence[str]) -> bool:
    """Whether these counters of the queues tell of all but 1 % of what went into `flow` in the last minutes.

    Where they do not, something else feeds it (a queue that is not read), and their rates are not its rates. Where
    nothing went in there is nothing to tell by.
    """
    last = flow[-1]
    first = next(each for each in flow if each.start == last.start)
    if last.added is None or first.added is None or last.added <= first.added:
        return False
    put = last.added - first.added
    for looks in queues:
        if looks[-1].us == last.us:
            then = next((each for each in looks if each.us == first.us), None)
            put -= sum(_grown(then, looks[-1], counter) or 0 for counter in counters)
    return put <= UNEXPLAINED * (last.added - first.added)


class _Since(NamedTuple):
    """What was `put` into an outflow since its cut, and by the counters of each queue what was sent and acknowledged:
    None where its counters do not tell."""

    put: int
    told: list[tuple[Count, int | None, int | None]]


def _since_cut(flow: Sequence[Count], queues: Iterable[Sequence[Count]]) -> _Since | None:
    last, cut = flow[-1], newest_cut(flow)
    if cut is None or last.added is None or cut.added is None:
        return None
    told = []
    for looks in queues:
        now = looks[-1]
        then = next((each for each in reversed(looks) if each.us == cut.us), None) if now.us == last.us else None
        told.append((now, _grown(then, now, "added"), _grown(then, now, "acked")))
    return _Since(last.added - cut.added, told)


def newest_cut(flow: Sequence[Count]) -> Count | None:
    """The newest look at which no more had been put in than is shipped by now; None where that is not known."""
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
