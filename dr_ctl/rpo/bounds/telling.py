"""Explains the bounds of a failover in words: the sum that an operator can check, and further findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding, some
from dr_ctl.rpo.bounds.death import STALE_US, Death, How
from dr_ctl.rpo.bounds.outflow import Part
from dr_ctl.rpo.bounds.pair import Pair, added
from dr_ctl.rpo.findings import (
    LIES_AT_SURVIVOR,
    NEWEST_LOOK_OLD,
    ONE_PAIR_ONLY,
    OUTFLOW_NOT_READ,
    SURVIVOR_NOT_READ,
    UNBOUNDED_SINCE_LOOK,
)
from dr_ctl.rpo.history.newest import US
from dr_ctl.rpo.history.row import moment


def because(pairs: Sequence[Pair], death: Death, likely: int | None) -> str | None:
    """The sum of the possible loss, in messages; None where the loss is not known."""
    lost = added([pair.lost for pair in pairs])
    if lost is None:
        return None
    expected = "" if likely is None else f"likely {likely}, at most {lost.at_most}, because "
    less = f" less {lost.received} that the other site received since," if lost.received else ""
    text = (
        f"{expected}{lost.at_most} = {lost.there} neither shipped nor consumed at the look of "
        f"{stamp(moment(lost.us))}, + at most {lost.since} that may have come{_pace(lost, death)}{less} until "
        f"{death.text}"
    )
    if death.how is How.OPEN:
        return f"{text}; it grows by up to {lost.rate:.0f} a second until then"
    return f"{text}; it does not shrink or grow by waiting"


def _pace(lost: Part, death: Death) -> str:
    elapsed_s = max(0, death.us - lost.us) / US
    at_once = int(lost.since - lost.rate * elapsed_s)
    burst = f" and {at_once} at once" if at_once > 0 else ""
    return f" in {elapsed_s:.1f} s, at up to {lost.rate:.1f} a second{burst} as before it," if lost.since else ""


def findings(site: str, pairs: Sequence[Pair], death: Death, *, is_summed: bool) -> Iterable[Finding]:
    """Findings on the bounds of each pair. With `is_summed` the sum of all pairs already tells the counts."""
    for pair in pairs:
        yield from _of_pair(site, pair, death, is_summed=is_summed)


def _of_pair(site: str, pair: Pair, death: Death, *, is_summed: bool) -> Iterator[Finding]:
    where = f"the outflow of {site}, pair {pair.name}"
    if pair.lost_read_us is None or pair.twice_read_us is None:
        missing = "messages" if pair.lost_read_us is None else "acknowledgements"
        text = f"the history holds no recent look at {where}: how many {missing} it takes with it is not known"
        remedy = "Let `dr-ctl monitor` run while the site answers; now only the unknown can be accepted."
        yield OUTFLOW_NOT_READ(text, remedy)
    if pair.lost_read_us is None:
        return
    elapsed_us = death.us - pair.lost_read_us
    if elapsed_us > STALE_US:
        text = f"the last look at {where} was {elapsed_us / US:.0f} s before {death.text}"
        yield NEWEST_LOOK_OLD(text, "The bounds grow with this time.")
    if pair.lost is None or pair.twice is None:
        yield _unbounded(pair.lost_read_us, where, elapsed_us)
    elif not is_summed:
        yield _rests_on(pair, where, elapsed_us, death)
    yield from _left(pair, site)


def _left(pair: Pair, site: str) -> Iterator[Finding]:
    """Findings on copies of processed messages that lost acknowledgements left at the other site."""
    if unread := [name for name, number in pair.left.items() if number is None]:
        text = (
            f"pair {pair.name}: what lies at the other site of {site} was not read beside it: {some(unread)}; what was "
            "done and left there by lost acknowledgements comes twice beside the bound"
        )
        yield SURVIVOR_NOT_READ(text, "Let `dr-ctl monitor` run while both sites answer.")
    if left := [f"{name}: {number}" for name, number in pair.left.items() if number]:
        text = (
            f"pair {pair.name}: lies at the other site although {site} has it no more, at most: {some(left)}; "
            "acknowledgements on their way, and those that were lost: the bound on what comes twice holds them"
        )
        yield LIES_AT_SURVIVOR(text, "A planned move removes such copies by their ids.")


def _unbounded(read_us: int, where: str, elapsed_us: int) -> Finding:
    why = "there are too few looks before it for a rate, or not every figure was read"
    why = "it lies in the future of this machine's clock" if elapsed_us < 0 else why
    text = f"{where}: what changed after the look at {stamp(moment(read_us))} has no bound: {why}"
    return UNBOUNDED_SINCE_LOOK(text, "Let `dr-ctl monitor` run, on a machine whose clock is set.")


def _rests_on(pair: Pair, where: str, elapsed_us: int, death: Death) -> Finding:
    rate = 0.0 if pair.lost is None else pair.lost.rate
    text = (
        f"{where}: the bounds rest on the look at {stamp(moment(pair.lost_read_us or 0))} and on at most {rate:.1f} a "
        f"second since, the highest rate of the minutes before it, for {elapsed_us / US:.1f} s until {death.text}"
    )
    return ONE_PAIR_ONLY(text, "A shorter `history.every` makes them narrower.")
