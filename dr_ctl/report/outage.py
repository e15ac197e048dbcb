"""How long the run kept clients out: from the fence to the activation, or to the undo of the fence."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dr_ctl.core.document import mapping, moment, number, text
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.history import LET_IN_AT
from dr_ctl.report.reading import Material
from dr_ctl.report.story import Act, Mark, Story
from dr_ctl.report.values import NOT_KNOWN, clock, seconds

_AT_ONCE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Outage:
    """`began` is None where this run kept nobody out; `ended` where the journal holds no moment of letting them in. The
    seconds are None where nothing tells."""

    began: datetime | None
    ended: datetime | None
    figure: str
    sentence: str
    at_least_s: float | None = None
    at_most_s: float | None = None


def outage(story: Story, material: Material) -> Outage:
    """Work out the outage from the steps; the executor's own measure is taken where it covers the same stretch."""
    if (lost := _lost(material)) is not None:
        return _since_the_loss(story, lost, mapping(mapping(material.result).get("data")).get("out_s"))
    held = _held(story)
    fence = next((act for act in story.of("fence") if any(call.outcome != "refused" for call in act.calls)), None)
    if fence is None:
        closed = next((act for act in story.of("fence") if act.mark is Mark.NOT_NEEDED), None)
        if closed is None:
            sentence = "No call of a fence went out that could have had an effect: this run kept no client out."
            return Outage(None, None, "none", sentence) if held is None else _only_held(held)
        site = closed.site or "the source"
        sentence = f"Out of {site} since before this run; its journal does not say since when."
        return Outage(None, None, NOT_KNOWN, sentence)
    since = f"from {clock(fence.began)}, when the fence of {fence.site or 'the source'} began"
    end = _end(story, fence)
    if end is None or end.ended is None:
        sentence = f"Out {since}; the journal holds no moment at which they were let in again."
        return Outage(fence.began, None, "no end written", sentence)
    let_in = _let_in(end)
    took = max(0.0, (let_in - fence.began).total_seconds())
    measured = number(mapping(mapping(material.result).get("data")).get("outage_s"))
    if len(story.parts) == 1 and not end.undo and measured is not None:
        took = measured
    if end.undo:
        until = f"to {clock(end.ended)}, when the fence was undone"
    else:
        until = f"to {clock(let_in)}, when {end.site or 'the target'} let them in"
    before = f" Earlier, none got a message for {seconds(held)}, while residue came in." if held is not None else ""
    # A resumed run that found the target open cannot tell when between its parts that came about.
    most = "at most " if end.mark is Mark.NOT_NEEDED else ""
    return Outage(
        fence.began,
        let_in,
        f"{most}{seconds(took)}",
        f"{since[0].upper()}{since[1:]}, {until}{_exact(took)}.{_held_back(end)}{_paused(story, fence)}{before}",
        None if most else took,
        took,
    )


def _let_in(end: Act) -> datetime:
    """When clients got in: an activation may go on until all that was held back is delivered too."""
    let_in_at = text(end.evidence.get(LET_IN_AT))
    return datetime.fromisoformat(let_in_at) if let_in_at else end.ended or end.began


def _held_back(end: Act) -> str:
    """Since when all is delivered, where that came later."""
    let_in = _let_in(end)
    if end.undo or end.ended is None or (end.ended - let_in).total_seconds() < _AT_ONCE_S:
        return ""
    return f" What was held back there is delivered since {clock(end.ended)}."


def _only_held(held_s: float) -> Outage:
    sentence = "No client was kept out, but none got a message while the lost site's residue came in"
    return Outage(None, None, f"none; no delivery for {seconds(held_s)}", f"{sentence}: for {seconds(held_s)}.")


def _lost(material: Material) -> str | None:
    """The site that a failover leaves; None for other runs."""
    plan = material.plans[-1] if material.plans else {}
    is_failover = text(mapping(plan.get("ask")).get("operation")) == "failover"
    return (text(plan.get("source")) or "the source") if is_failover else None


def _since_the_loss(story: Story, lost: str, bounds: object) -> Outage:
    """The outage of a failover: clients were out before the run began. The journal has only its end, and looks that
    were read at that end bound its beginning."""
    end = next((act for act in story.acts if _lets_in(act) and act.ended is not None), None)
    if end is None:
        sentence = f"Out since {lost} was lost; the journal holds no moment at which they were let in."
        return Outage(None, None, NOT_KNOWN, sentence)
    told = mapping(bounds)
    at_least, at_most = number(told.get("at_least")), number(told.get("at_most"))
    served, gone = moment(told.get("last_served")), moment(told.get("seen_down"))
    looks = [f"{lost} was last seen to serve at {clock(served)}" if served is not None else ""]
    looks.append(f"{'' if served else f'{lost} was '}first seen down at {clock(gone)}" if gone is not None else "")
    snapshot = ", ".join(filter(None, looks)) or f"Out since {lost} was lost, which no look tells"
    sentence = f"{snapshot[0].upper()}{snapshot[1:]}; let in at {clock(_let_in(end))} by {end.site or 'the target'}."
    parts = [f"at least {seconds(at_least)}" if at_least is not None else ""]
    parts.append(f"at most {seconds(at_most)}" if at_most is not None else "")
    return Outage(None, None, ", ".join(filter(None, parts)) or NOT_KNOWN, sentence, at_least, at_most)


def _end(story: Story, fence: Act) -> Act | None:
    """The first that let clients in after the fence, by the order of the journal."""
    after = story.acts[story.acts.index(fence) + 1 :]
    return next((act for act in after if _lets_in(act)), None)


def _lets_in(act: Act) -> bool:
    if act.undo:
        return act.verb == "fence" and act.mark is Mark.UNDONE
    return act.verb == "activate" and act.mark in (Mark.DONE, Mark.NOT_NEEDED)


def _exact(took_s: float) -> str:
    """The exact seconds, where minutes and hours would round them away."""
    return f": {took_s:.1f} s" if took_s >= 60 else ""  # noqa: PLR2004


def _paused(story: Story, fence: Act) -> str:
    """How much longer nothing was delivered: the time behind the fence is the outage itself."""
    quiesce = next((act for act in story.of("quiesce") if act.calls), None)
    if quiesce is None:
        return ""
    took = max(0.0, (fence.began - quiesce.began).total_seconds())
    return f" Delivery had stopped {seconds(took)} before that fence, with the quiesce at {clock(quiesce.began)}."


def _held(story: Story) -> float | None:
    """Seconds for which taking in a lost site paused delivery at the serving site; None without a pause."""
    for act in reversed(story.of("reinstate")):
        pauses = [made for made in act.calls if made.call.get("goal") == Goal.PAUSE.value and made.outcome != "refused"]
        if pauses:
            lifted = [made.ended for made in act.calls if made.call.get("goal") == Goal.RESUME.value]
            end = max((each for each in lifted if each is not None), default=act.ended)
            return None if end is None else max(0.0, (end - pauses[0].began).total_seconds())
    return None
