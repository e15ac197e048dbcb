"""Explains the bounds of a failover in words: the sum that an operator can check, and further findings."""

from collections.abc import Iterator, Sequence
from typing import Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding, Severity, some
from dr_ctl.engine.findings import COUNTS_DIFFER
from dr_ctl.rpo.bounds.apart import Apart
from dr_ctl.rpo.bounds.death import STALE_US, Death, How
from dr_ctl.rpo.bounds.direction import Part, added
from dr_ctl.rpo.bounds.pair import Pair
from dr_ctl.rpo.findings import (
    LIES_AT_SURVIVOR,
    LOOKS_AHEAD,
    NEWEST_LOOK_OLD,
    NOBODY_LOOKED,
    ONE_PAIR_ONLY,
    OUTFLOW_NOT_READ,
    SURVIVOR_NOT_READ,
    UNBOUNDED_SINCE_LOOK,
)
from dr_ctl.rpo.history.newest import US
from dr_ctl.rpo.history.row import moment

_WORD: Final = (
    "Where somebody knows when its service ended: `--silent-since T --reason TEXT`. Let `dr-ctl monitor` run on: it "
    "sees that the site stays down."
)


def because(pairs: Sequence[Pair], death: Death, likely: int | None, sites: tuple[str, str]) -> str | None:
    """The sum of the possible loss, in messages, or why nobody knows it although it was read; None where it was
    not."""
    lost = added([pair.lost for pair in pairs])
    if lost is None:
        return _at_least(pairs, sites)
    expected = "" if likely is None else f"likely {likely}, at most {lost.at_most}, because "
    alone = [each for pair in pairs for each in pair.apart.queues.values() if each.here > each.there]
    apart = f", + {lost.apart} at {sites[0]} alone ({_named(alone, sites)})" if lost.apart else ""
    text = (
        f"{expected}{lost.at_most} = {lost.there} neither shipped nor consumed at the reading of "
        f"{stamp(moment(lost.us))}{apart}, + at most {lost.since} sent in the {lost.took_us / US:.1f} s until "
        f"{death.text}{_busiest(lost)}"
    )
    if death.grows:
        return f"{text}; it grows by up to {lost.rate:.0f} a second until {_until(death)}"
    return f"{text}; waiting does not change this"


def _at_least(pairs: Sequence[Pair], sites: tuple[str, str]) -> str | None:
    """What is lost at least, where the sites differ and nobody can say why."""
    untold = [each for pair in pairs for each in pair.apart.queues.values() if each.lost is None]
    if not untold:
        return None
    least = sum(each.here - each.there for each in untold)
    return (
        f"not known, but at least {least}: {_named(untold, sites)}, and no more of it was on its way to {sites[1]}: "
        "nobody can say why"
    )


def _named(queues: Sequence[Apart], sites: tuple[str, str]) -> str:
    return some([each.text(*sites) for each in queues])


def _busiest(lost: Part) -> str:
    return " (assuming the highest rate of the last minutes)" if lost.since else ""


def _until(death: Death) -> str:
    return "it is seen down" if death.how is How.OPEN else "a monitor looks again"


def findings(
    sites: tuple[str, str], pairs: Sequence[Pair], death: Death, *, later: int, is_summed: bool
) -> Iterator[Finding]:
    """Findings on what the bounds rest on. With `is_summed` the sum of all pairs already tells the counts."""
    site, other = sites
    if later:
        text = f"{later} look(s) at {site} are stamped later than now, and are left out"
        yield LOOKS_AHEAD(text, "Set the clocks of this machine and of the monitor's (NTP).")
    if death.unwatched is not None and death.how is not How.WORD:
        since, until = (stamp(moment(us)) for us in death.unwatched)
        text = f"{site} was seen down at {since}, and nobody looked until {until}: it may have served meanwhile"
        yield NOBODY_LOOKED(text, _WORD)
    elif death.how is How.UNWATCHED and any(each.is_read for each in pairs):
        is_known = any((each.lost, each.duplicates) != (None, None) for each in pairs)
        grow = ": the bounds count up to now, and grow" if is_known else ""
        yield NOBODY_LOOKED(f"{site} is down, and no monitor has looked since it was last read{grow}", _WORD)
    for pair in pairs:
        yield from _of_pair(site, pair, death, is_summed=is_summed)
        if untold := [each for each in pair.apart.queues.values() if None in (each.lost, each.duplicates)]:
            at = "" if pair.apart.us is None else f" (reading of {stamp(moment(pair.apart.us))})"
            yield COUNTS_DIFFER(
                f"the sites differ by more than what is under way: {_named(untold, sites)}{at}",
                f"What {site} has and {other} has not is lost with {site}, and what lies at {other} alone may be a "
                "duplicate: how many, nobody can say. A failover needs `unknown` accepted for it; find out why before, "
                "or leave such queues out with `queues: {exclude: …}`.",
                severity=Severity.WARNING,
            )


def _of_pair(site: str, pair: Pair, death: Death, *, is_summed: bool) -> Iterator[Finding]:
    where = f"the outflow of {site}, pair {pair.name}"
    if pair.lost_read_us is None or pair.duplicates_read_us is None:
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
    untold = any(None in (each.lost, each.duplicates) for each in pair.apart.queues.values())
    if (pair.lost is None or pair.duplicates is None) and not untold:
        yield _unbounded(pair, pair.lost_read_us, where, elapsed_us)
    elif pair.lost is not None and not is_summed:
        yield _rests_on(pair.lost, where, death)
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


def _unbounded(pair: Pair, read_us: int, where: str, elapsed_us: int) -> Finding:
    why = "too few looks before it tell a pace, or nobody looked for long after little moved, or a figure was not read"
    why = "it lies in the future of this machine's clock" if elapsed_us < 0 else why
    if pair.overtaken is not None:
        why = f"{pair.overtaken} message(s) came to the other site since, more than the pace before explains"
    text = f"{where}: what changed after the look at {stamp(moment(read_us))} has no bound: {why}"
    return UNBOUNDED_SINCE_LOOK(text, "Let `dr-ctl monitor` run, on a machine whose clock is set.")


def _rests_on(lost: Part, where: str, death: Death) -> Finding:
    text = (
        f"{where}: the bounds rest on the look at {stamp(moment(lost.us))} and on at most {lost.since} sent in the "
        f"{lost.took_us / US:.1f} s until {death.text}{_busiest(lost)}"
    )
    return ONE_PAIR_ONLY(text, "A shorter `history.every` makes them narrower.")
