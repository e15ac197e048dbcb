"""The facts of a run for an auditor: who started it, its installation, how long clients were out, and its results
against objectives.

Clients are out from the fence to the activation, or to the undo of the fence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from dr_ctl.core.document import items, mapping, moment, number, text
from dr_ctl.core.notation import NOT_KNOWN
from dr_ctl.engine.plan import Goal
from dr_ctl.engine.record import Material
from dr_ctl.report.story import Mark, Story
from dr_ctl.report.values import clock, count, many, seconds

_SILENT: Final = "the journal does not say"
_AT_ONCE_S: Final = 0.25
RECOVERY: Final = "Clients served again"
LOST: Final = "Messages lost"
NOT_KEPT: Final = "not kept"


class Fact(NamedTuple):
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """An objective and its result. `sign` is that of a tone: `good` if it was kept, `cost` if not, `open` if that is
    not known, empty without a judgement."""

    name: str
    objective: str = ""
    result: str = ""
    judged: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Outage:
    """`began` is None if this run kept no client out, `ended` if the journal has no moment at which clients could
    connect again. The seconds are None if they are not known."""

    began: datetime | None
    ended: datetime | None
    figure: str
    sentence: str
    at_least_s: float | None = None
    at_most_s: float | None = None


def of_what(material: Material) -> tuple[Fact, ...]:
    """The installation with its brokers, who started the run, and the command."""
    installation, approved = material.installation, material.approved
    facts = [Fact("Run", material.name)]
    if installation is None:
        facts.append(Fact("Installation", _SILENT))
    else:
        settings = mapping(installation.get("settings"))
        digest = text(settings.get("sha256")) or NOT_KNOWN
        facts += [
            Fact("Installation", text(installation.get("name")) or NOT_KNOWN),
            Fact("Topology", text(installation.get("topology")) or NOT_KNOWN),
            Fact("Settings", f"{text(settings.get('file'))}, SHA-256 `{digest}`"),
            *_brokers(mapping(installation.get("brokers")), material),
        ]
    names = {"version": "Version of dr-ctl", "command": "Command", "user": "By", "host": "On host"}
    for key, name in names.items():
        values = filter(None, dict.fromkeys(text(author.get(key)) for author in material.authors))
        written = "; then ".join(f"`{value}`" if key == "command" else value for value in values)
        facts.append(Fact(name, written or _SILENT))
    if approved is not None:
        signers = map(mapping, items(approved.get("by")))
        signed = "; ".join(f"{text(signer.get('name'))} ({text(signer.get('key'))})" for signer in signers)
        facts.append(Fact("Approved by", signed or NOT_KNOWN))
        facts.append(Fact("Approved plan", f"SHA-256 `{text(approved.get('plan_sha256')) or NOT_KNOWN}`"))
    reasons = dict.fromkeys(text(row.get("reason")) for row in (material.spec, *material.authors))
    reason = "; then ".join(filter(None, reasons))
    return (*facts, Fact("Reason, or number of the change", reason or "none was given"))


def _brokers(addresses: Mapping[str, Any], material: Material) -> Iterator[Fact]:
    """A line for each site; the versions are those at the decision of the plan."""
    sites = mapping(mapping(material.plan.get("basis")).get("brokers"))
    for site, brokers in addresses.items():
        lines = []
        for broker in map(str, items(brokers)):
            row = mapping(mapping(sites.get(site)).get(broker.partition(" at ")[0]))
            lines.append(f"{broker}, version {text(row.get('version')) or NOT_KNOWN}")
        yield Fact(f"Brokers of {site}", "; ".join(lines) or NOT_KNOWN)


def measured(material: Material, out: Outage) -> tuple[Measured, ...]:
    """Hold each objective against its result; a run that moved nothing has none."""
    limits = mapping(mapping(material.installation).get("objectives"))
    rows = []
    if out.at_most_s is not None or out.at_least_s is not None or out.figure == NOT_KNOWN:
        rows.append(_recovery(number(limits.get("recovery_s")), out, put_back=material.data.get("undone") is True))
    spec, bounds = mapping(material.last_plan.get("ask")), mapping(material.data.get("bounds"))
    for key, name, accepted in (("lost", LOST, "accept_loss"), ("duplicates", "Duplicates", "accept_duplicates")):
        if key in bounds:
            rows.append(_bounded(name, number(limits.get(key)), spec.get(accepted), mapping(bounds[key])))
    return tuple(rows)


def _recovery(limit: float | None, out: Outage, *, put_back: bool) -> Measured:
    """A move that was put back kept no objective, however short clients were out for it."""
    judged, sign = _judged(limit, out.at_most_s, out.at_least_s)
    if put_back and limit is not None:
        judged, sign = f"{NOT_KEPT}: undone", "cost"
    objective = f"within {seconds(limit)}" if limit is not None else "none is set"
    return Measured(RECOVERY, objective, out.figure, judged, sign)


def _bounded(name: str, limit: float | None, accepted: object, bound: Mapping[str, Any]) -> Measured:
    at_most, likely = number(bound.get("at_most")), number(bound.get("likely"))
    result = f"at most {count(at_most)}" if at_most is not None else NOT_KNOWN
    result += f", likely {count(likely)}" if likely is not None and likely != at_most else ""
    judged, sign = _judged(limit, at_most, likely)
    if accepted is not None and judged != "kept":
        figure = number(accepted)
        judged += f"; a person accepted {accepted if figure is None else many(int(figure), 'message')}"
    return Measured(name, f"at most {count(limit)}" if limit is not None else "none is set", result, judged, sign)


def _judged(limit: float | None, at_most: float | None, least: float | None) -> tuple[str, str]:
    """Judge a figure, known as at most and as least or likely, against its limit; return the word and its sign."""
    if limit is None:
        return "no objective", "info"
    if at_most is not None and at_most <= limit:
        return "kept", "good"
    return (NOT_KEPT, "cost") if least is not None and least > limit else ("cannot tell", "open")


def outage(story: Story, material: Material) -> Outage:
    """Work out the outage from the steps; the executor's own measure is taken where it covers the same stretch."""
    if text(mapping(material.last_plan.get("ask")).get("operation")) == "failover":
        lost = text(material.last_plan.get("source")) or "the source"
        return _since_the_loss(story, lost, mapping(material.data.get("out_s")))
    held = _held(story)
    fence = next((step for step in story.of("fence") if any(call.outcome != "refused" for call in step.calls)), None)
    if fence is None:
        return _without_fence(story, held)
    since = f"from {clock(fence.began)}, when the fence of {fence.site or 'the source'} began"
    end = next((step for step in story.steps[story.steps.index(fence) + 1 :] if step.let_in_at is not None), None)
    if end is None or end.ended is None or (let_in := end.let_in_at) is None:
        sentence = f"Out {since}; the journal holds no moment at which they were let in again."
        return Outage(fence.began, None, "no end written", sentence)
    took = max(0.0, (let_in - fence.began).total_seconds())
    as_measured = number(material.data.get("outage_s"))
    if len(story.parts) == 1 and not end.undo and as_measured is not None:
        took = as_measured
    until = f"to {clock(let_in)}, when {end.site or 'the target'} let them in"
    if end.undo:
        until = f"to {clock(end.ended)}, when the fence was undone"
    # The exact seconds, where minutes and hours would round them away.
    exact = f": {took:.1f} s" if took >= 60 else ""  # noqa: PLR2004
    sentence = f"{since[0].upper()}{since[1:]}, {until}{exact}."
    if not end.undo and (end.ended - let_in).total_seconds() >= _AT_ONCE_S:
        sentence += f" What was held back there is delivered since {clock(end.ended)}."
    if (quiesce := next((step for step in story.of("quiesce") if step.calls), None)) is not None:
        before = seconds(max(0.0, (fence.began - quiesce.began).total_seconds()))
        sentence += f" Delivery had stopped {before} before that fence, with the quiesce at {clock(quiesce.began)}."
    if held is not None:
        sentence += f" Earlier, none got a message for {seconds(held)}, while residue came in."
    # A resumed run that finds the target open cannot tell when between its parts that came about.
    is_bound = end.mark is Mark.NOT_NEEDED
    figure = f"{'at most ' if is_bound else ''}{seconds(took)}"
    return Outage(fence.began, let_in, figure, sentence, None if is_bound else took, took)


def _without_fence(story: Story, held: float | None) -> Outage:
    closed = next((step for step in story.of("fence") if step.mark is Mark.NOT_NEEDED), None)
    if closed is not None:
        sentence = f"Out of {closed.site or 'the source'} since before this run; its journal does not say since when."
        return Outage(None, None, NOT_KNOWN, sentence)
    if held is None:
        sentence = "No call of a fence went out that could have had an effect: this run kept no client out."
        return Outage(None, None, "none", sentence)
    sentence = "No client was kept out, but none got a message while the lost site's residue came in"
    return Outage(None, None, f"none; no delivery for {seconds(held)}", f"{sentence}: for {seconds(held)}.")


def _since_the_loss(story: Story, lost: str, bounds: Mapping[str, Any]) -> Outage:
    """The outage of a failover: clients were out before the run began. The journal has only its end, and samples that
    were read at that end bound its beginning."""
    end = next((step for step in story.steps if step.let_in_at is not None), None)
    if end is None or end.let_in_at is None:
        sentence = f"Out since {lost} was lost; the journal holds no moment at which they were let in."
        return Outage(None, None, NOT_KNOWN, sentence)
    at_least, at_most = number(bounds.get("at_least")), number(bounds.get("at_most"))
    served, gone = moment(bounds.get("last_served")), moment(bounds.get("seen_down"))
    samples = [f"{lost} was last seen serving at {clock(served)}" if served is not None else ""]
    samples.append(f"{'' if served else f'{lost} was '}first seen down at {clock(gone)}" if gone is not None else "")
    since = ", ".join(filter(None, samples)) or f"Out since {lost} was lost, at a time that no sample shows"
    sentence = f"{since[0].upper()}{since[1:]}; let in at {clock(end.let_in_at)} by {end.site or 'the target'}."
    parts = [f"at least {seconds(at_least)}" if at_least is not None else ""]
    parts.append(f"at most {seconds(at_most)}" if at_most is not None else "")
    return Outage(None, None, ", ".join(filter(None, parts)) or NOT_KNOWN, sentence, at_least, at_most)


def _held(story: Story) -> float | None:
    """Return the seconds for which taking in a lost site paused delivery at the serving site, or None without a
    pause."""
    for step in reversed(story.of("reinstate")):
        pauses = [row for row in step.calls if row.call.get("goal") == Goal.PAUSE.value and row.outcome != "refused"]
        if pauses:
            lifted = [made.ended for made in step.calls if made.call.get("goal") == Goal.RESUME.value]
            end = max((ended for ended in lifted if ended is not None), default=step.ended)
            return None if end is None else max(0.0, (end - pauses[0].began).total_seconds())
    return None
