"""What an auditor asks of a run: of which installation it was, by whose word, and its results against objectives."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.document import items, mapping, number, text
from dr_ctl.report.outage import Outage
from dr_ctl.report.reading import Material
from dr_ctl.report.values import NOT_KNOWN, count, many, seconds

_SILENT: Final = "the journal does not say"
RECOVERY: Final = "Clients served again"
LOST: Final = "Messages lost"
NOT_KEPT: Final = "not kept"


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """An objective and what came of it. `sign` is that of a tone: `good` where it was kept, `owed` where it was not,
    `open` where nothing can tell."""

    name: str
    objective: str
    result: str
    judged: str
    sign: str


def authors(material: Material) -> list[Mapping[str, Any]]:
    """Who carried out each part of the run: those who ran or resumed it, and those who undid it."""
    begun = [entry.evidence for entry in material.entries if entry.kind in ("run", "lock")]
    return [mapping(each.get("by")) for each in begun if mapping(each.get("by"))]


def of_what(material: Material) -> tuple[Fact, ...]:
    """The installation with its brokers, and who asked for the run, by which words."""
    by = authors(material)
    about = next((mapping(each["about"]) for each in by if "about" in each), None)
    facts = [Fact("Run", material.name)]
    if about is None:
        facts.append(Fact("Installation", _SILENT))
    else:
        settings = mapping(about.get("settings"))
        digest = text(settings.get("sha256")) or NOT_KNOWN
        facts += [
            Fact("Installation", text(about.get("name")) or NOT_KNOWN),
            Fact("Topology", text(about.get("topology")) or NOT_KNOWN),
            Fact("Settings", f"{text(settings.get('file'))}, SHA-256 `{digest}`"),
            *_brokers(mapping(about.get("brokers")), material),
        ]
    names = [("version", "Version of dr-ctl"), ("command", "Command"), ("user", "By"), ("host", "On host")]
    for key, name in names:
        values = list(dict.fromkeys(text(each.get(key)) for each in by if text(each.get(key))))
        values = [f"`{each}`" for each in values] if key == "command" else values
        facts.append(Fact(name, "; then ".join(values) or _SILENT))
    facts += _approved(by)
    ask = mapping(material.plans[0].get("ask")) if material.plans else {}
    facts.append(Fact("Reason, or number of the change", text(ask.get("reason")) or "none was given"))
    return tuple(facts)


def _approved(by: list[Mapping[str, Any]]) -> Iterator[Fact]:
    """The people whose signatures stand under the plan; no fact where the settings ask for none."""
    approved = next((mapping(each["approved"]) for each in by if "approved" in each), None)
    if approved is not None:
        signed = [
            f"{text(row.get('name'))} ({text(row.get('key'))})" for row in map(mapping, items(approved.get("by")))
        ]
        yield Fact("Approved by", "; ".join(signed) or NOT_KNOWN)
        yield Fact("Approved plan", f"SHA-256 `{text(approved.get('plan_sha256')) or NOT_KNOWN}`")


def _brokers(addresses: Mapping[str, Any], material: Material) -> Iterator[Fact]:
    """A site a line; the versions are those that the plan was decided by."""
    plan = material.plans[0] if material.plans else {}
    snapshot = mapping(mapping(plan.get("basis")).get("brokers"))
    for site, brokers in addresses.items():
        lines = []
        for broker in map(str, items(brokers)):
            version = text(mapping(mapping(snapshot.get(site)).get(broker.partition(" at ")[0])).get("version"))
            lines.append(f"{broker}, version {version}" if version else f"{broker}, version {NOT_KNOWN}")
        yield Fact(f"Brokers of {site}", "; ".join(lines) or NOT_KNOWN)


def measured(material: Material, out: Outage) -> tuple[Measured, ...]:
    """Each objective against its result; none for a run that moved nothing."""
    by = authors(material)
    limits = next((mapping(mapping(each["about"]).get("objectives")) for each in by if "about" in each), {})
    data = mapping(mapping(material.result).get("data"))
    rows = []
    if out.at_most_s is not None or out.at_least_s is not None or out.figure == NOT_KNOWN:
        rows.append(_recovery(number(limits.get("recovery_s")), out, put_back=data.get("undone") is True))
    ask = mapping(material.plans[-1].get("ask")) if material.plans else {}
    bounds = mapping(data.get("bounds"))
    for key, name in (("lost", LOST), ("duplicates", "Duplicates")):
        if key in bounds:
            accepted = ask.get("accept_loss" if key == "lost" else "accept_duplicates")
            rows.append(_price(name, number(limits.get(key)), accepted, mapping(bounds[key])))
    return tuple(rows)


def _recovery(limit: float | None, out: Outage, *, put_back: bool) -> Measured:
    """A move that was put back kept no objective, however short clients were out for it."""
    name, objective = RECOVERY, f"within {seconds(limit)}" if limit is not None else "none is set"
    if limit is None:
        return Measured(name, objective, out.figure, "no objective", "info")
    if put_back:
        return Measured(name, objective, out.figure, f"{NOT_KEPT}: put back", "owed")
    if out.at_most_s is not None and out.at_most_s <= limit:
        return Measured(name, objective, out.figure, "kept", "good")
    if out.at_least_s is not None and out.at_least_s > limit:
        return Measured(name, objective, out.figure, NOT_KEPT, "owed")
    return Measured(name, objective, out.figure, "cannot tell", "open")


def _price(name: str, limit: float | None, accepted: object, bound: Mapping[str, Any]) -> Measured:
    at_most, likely = number(bound.get("at_most")), number(bound.get("likely"))
    result = f"at most {count(at_most)}" if at_most is not None else NOT_KNOWN
    result += f", likely {count(likely)}" if likely is not None and likely != at_most else ""
    objective = f"at most {count(limit)}" if limit is not None else "none is set"
    by_word = "" if accepted is None else f"; a person accepted {_words(accepted)}"
    if limit is None:
        return Measured(name, objective, result, f"no objective{by_word}", "info")
    if at_most is not None and at_most <= limit:
        return Measured(name, objective, result, "kept", "good")
    if likely is not None and likely > limit:
        return Measured(name, objective, result, f"{NOT_KEPT}{by_word}", "owed")
    return Measured(name, objective, result, f"cannot tell{by_word}", "open")


def _words(accepted: object) -> str:
    figure = number(accepted)
    return str(accepted) if figure is None else many(int(figure), "message")
