"""`init`: makes a settings file from the management addresses of two sites' brokers.

Changes nothing at the brokers. A password comes from a question, or from the variable that the file will name, and is
not written.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from shutil import copy, rmtree
from string import ascii_lowercase
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.core import machine
from dr_ctl.core.document import document, optional
from dr_ctl.core.errors import BrokerError, Unreachable, UsageError, writing
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json, brief, by_key
from dr_ctl.core.tls import TlsFiles
from dr_ctl.engine.runs import write_text
from dr_ctl.jolokia.client import READ_S, Account
from dr_ctl.jolokia.http import PolicyRefused
from dr_ctl.settings.loader import TOPOLOGIES
from dr_ctl.topologies import registry
from dr_ctl.topologies.proposing import BrokerAddress, Key, Proposal, proposed, stomp

SITES: Final = 2
_SITE: Final = re.compile(r"([a-z][a-z0-9-]*)=(https?://.+)")
_LABEL: Final = re.compile(r"[a-z][a-z0-9-]*")
DECIDE: Final = "DECIDE"


@dataclass(frozen=True, slots=True)
class InitRequest:
    """`ca` is the file of the authorities of the brokers' certificates."""

    urls: Sequence[str]
    out: Path
    name: str
    username: str
    topology: str | None = None
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ProbedBroker:
    site: str
    url: str
    seen: str


@dataclass(frozen=True, slots=True)
class InitData:
    """The files that were written. `init` with addresses has all but `directory` and `files`, without addresses only
    `settings` and `topology`."""

    settings: Path | None = optional()
    topology: str | None = optional()
    why: str | None = optional()
    to_decide: Sequence[str] | None = optional()
    brokers: Sequence[ProbedBroker] | None = optional()
    validate: Mapping[str, Json] | None = optional("the verdict on the settings: the data of `validate`")
    directory: Path | None = optional("with --examples, --systemd, --kubernetes")
    files: Sequence[str] | None = optional("those that were written there")
    next: Sequence[str] | None = optional("the commands to type then, in order")


def begin(caller: Caller, wanted: InitRequest) -> Result:
    """Read, propose, write; `data.to_decide` has the lines that a person must decide. Raises `UsageError`."""
    _must_be_new(wanted.out)
    if wanted.topology is not None:
        TOPOLOGIES.named(wanted.topology)
    addresses = list(_addresses(wanted.urls))
    if len({url.rstrip("/").lower() for _, url in addresses}) < len(addresses):
        text = "one address is named for two brokers: each broker has its own"
        raise UsageError(text, remedy="Name each broker's own console.")
    passwords = {site: _password(caller, site) for site in dict.fromkeys(site for site, _ in addresses)}
    try:
        probed = [_probe(site, url, wanted, passwords[site]) for site, url in addresses]
        places = [place for _, of in groupby(probed, key=lambda place: place.site) for place in _grouped([*of])]
    except BrokerError as error:
        finding = found("DR-INIT-001.silent", remedy=error.remedy, why=error)
        return Result(ExitCode.UNKNOWN, f"nothing was written: {error}", (finding,))
    first, second = ([*of] for _, of in groupby(places, key=lambda place: place.site))
    if len(first) != len(second):
        counts = f"{len(first)} broker(s) at {first[0].site}, {len(second)} at {second[0].site}"
        typed = " ".join(f"{of[0].site}={of[0].url}" for of in (first, second))
        raise UsageError(
            f"{counts}: each broker needs a peer at the other site",
            remedy=f"Where addresses of a site are nodes of one broker: `dr-ctl init {typed}`, with the active node's "
            "only, then the others under `nodes:` in the file. Else name as many at both sites, in the same order.",
        )
    both = [*zip(first, second, strict=True)]
    proposals = [proposal for pair in both if (proposal := proposed(*pair, wanted.topology)) is not None]
    if len(proposals) < len(both) or len({proposal.topology for proposal in proposals}) != 1:
        seen = brief([f"{place.site}: {_describe(place)}" for place in places])
        if silent := [place.url for place in places if place.probed is None]:
            finding = found("DR-INIT-001.refused", seen=seen, addresses=brief(silent))
        elif proposals:
            finding = found("DR-INIT-001.several", seen=seen)
        elif wanted.topology is not None:
            finding = found("DR-INIT-001.not_as_named", topology=wanted.topology, seen=seen)
        else:
            finding = found("DR-INIT-001.not_recognized", seen=seen)
        return Result(ExitCode.UNKNOWN, f"nothing was written: {finding.text}", (finding,))
    text = _document(wanted, [(*pair, proposal) for pair, proposal in zip(both, proposals, strict=True)])
    with writing(wanted.out, "Name another file: --out FILE."):
        write_text(wanted.out, text)
    decide = [line.strip() for line in text.splitlines() if f"# {DECIDE}: " in line]
    findings = [found("DR-INIT-002", lines=len(decide), file=wanted.out)] if decide else []
    findings += [
        found("DR-INIT-003", site=site, listener=listener.name, own=listener.separate, key=listener.key)
        for proposal in proposals
        for site, listener in proposal.shared.items()
    ]
    brokers = [ProbedBroker(place.site, place.url, _describe(place)) for place in places]
    data = InitData(wanted.out, proposals[0].topology, proposals[0].why, decide, brokers)
    summary = f"{wanted.out}: {proposals[0].topology}, by {proposals[0].why}"
    return Result(ExitCode.OK, summary, findings, data, text="\n".join(decide))


def _must_be_new(out: Path, remedy: str = "Name another file: --out FILE.") -> None:
    if out.exists():
        raise UsageError(f"{out} exists already", remedy=f"{remedy} Nothing was written.")


def _addresses(urls: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Group the addresses by site. The hosts of two addresses without a site name the sites."""
    named = [_SITE.fullmatch(url) for url in urls]
    if all(named):
        addresses = [(match[1], match[2]) for match in named if match is not None]
        sites = [*dict.fromkeys(site for site, _ in addresses)]
        if len(sites) != SITES:
            raise UsageError(f"{len(sites)} site(s) were named: {brief(sites)}", remedy="An installation has two.")
        yield from sorted(addresses, key=lambda address: sites.index(address[0]))
        return
    if any(named) or len(urls) != SITES:
        remedy = (
            "As in `dr-ctl init london=http://london-1:8161/console/jolokia paris=http://paris-1:8161/console/jolokia`."
        )
        raise UsageError("two addresses are needed, or SITE=URL for each", remedy=remedy)
    labels = [(urlsplit(url).hostname or "").partition(".")[0].rstrip("-0123456789") for url in urls]
    usable = len({*labels}) == SITES and all(_LABEL.fullmatch(label) and label != "localhost" for label in labels)
    yield from zip(labels if usable else ("site-a", "site-b"), urls, strict=True)


def variable(site: str) -> str:
    return f"{site.upper().replace('-', '_')}_PASSWORD"


def _password(caller: Caller, site: str) -> str:
    password = os.environ.get(variable(site)) or caller.people.secret(f"password for the brokers of {site}")
    if not password:
        remedy = f"Set {variable(site)}, which the settings will name: `init` reads it and does not write it."
        raise UsageError(f"there is no password for the brokers of {site}", remedy=remedy)
    os.environ[variable(site)] = password  # the validation in this process reads the variable
    return password


def _probe(site: str, url: str, wanted: InitRequest, password: str) -> BrokerAddress:
    """Read the broker at one address. A refused connection is no error, because such a broker may be passive."""
    parts = urlsplit(url)
    if parts.username or parts.password or not parts.hostname:
        raise UsageError(f"{site}: the address must have a host, and no login", remedy="Use --username.")
    origin, source = f"{parts.scheme}://{parts.hostname}", f"the environment variable {variable(site)}"
    tls = TlsFiles(str(wanted.ca) if wanted.ca else None)
    account = Account(url, wanted.username, password, origin, tls, source)
    try:
        return _probed(site, account, parts.hostname)
    except PolicyRefused as refused:
        # `artemis create` allows the origin localhost alone, whatever the address.
        local = replace(account, origin=f"{parts.scheme}://localhost")
        with suppress(PolicyRefused):
            return replace(_probed(site, local, parts.hostname), origin=local.origin)
        raise BrokerError(str(refused), remedy=f"Allow {origin} as an origin in its jolokia-access.xml.") from refused


def _probed(site: str, account: Account, host: str) -> BrokerAddress:
    try:
        return BrokerAddress(site, account.url, host, registry.probed(account, timeout_s=READ_S))
    except Unreachable as error:
        if not error.refused:
            raise
        return BrokerAddress(site, account.url, host, None)


def _grouped(places: Sequence[BrokerAddress]) -> list[BrokerAddress]:
    """Group the addresses of a site into brokers, each at its active node, by the id that nodes of a broker share. An
    address that refuses connections may be a passive node, if the site has only one broker."""
    first_active = sorted(places, key=lambda place: place.probed is None or not place.probed.active)
    by_node = by_key(
        (f"\n{place.url}" if place.probed is None else place.probed.node or place.url, place) for place in first_active
    )
    silent = [place for place in places if place.probed is None]
    if len(by_node) == len(silent) + 1 > 1:
        return [replace(first, nodes=(*others, *silent)) for key, (first, *others) in by_node.items() if key[0] != "\n"]
    return [replace(first, nodes=tuple(others)) for first, *others in by_node.values()]


def _describe(place: BrokerAddress) -> str:
    if place.probed is None:
        return "no broker answers"
    if not place.probed.active:
        return f"{place.probed.broker}, which is passive"
    return f"{place.probed.broker}, {place.probed.family.value} {place.probed.version}"


def _document(wanted: InitRequest, pairs: Sequence[tuple[BrokerAddress, BrokerAddress, Proposal]]) -> str:
    sites: dict[str, list[tuple[list[Key], list[tuple[dict[str, Json], str]]]]] = {}
    for first, second, proposal in pairs:
        name = _pair(first, second) if len(pairs) > 1 or first.probed is not None else wanted.name
        for place in (first, second):
            keys, nodes = _broker(place, name, wanted, proposal), _nodes(place, _listener(place, proposal))
            sites.setdefault(place.site, []).append(([*keys], [*nodes]))
    proposal = pairs[0][2]
    installation = [Key("topology", proposal.topology, proposal.why), *proposal.installation]
    ca = str(wanted.ca) if wanted.ca is not None else None
    origins = {address.site: address.origin for pair in pairs for address in pair[:2] if address.origin is not None}
    context = {"name": wanted.name, "installation": installation, "sites": sites, "ca": ca, "origins": origins}
    return render("settings.yaml", context)


def render(template: str, values: Mapping[str, Any]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - few commands write files

    environment = Environment(  # noqa: S701 - settings, units and manifests are no HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=PackageLoader("dr_ctl.application"),
    )
    environment.filters["yaml"] = _value
    return environment.get_template(f"{template}.j2").render(values)


def _broker(place: BrokerAddress, name: str, wanted: InitRequest, proposal: Proposal) -> Iterator[Key]:
    yield Key("name", name, "the same name at both sites makes a pair")
    if not _consoles(place):
        listed = place.probed.others if place.probed is not None else ()
        why = f"it lists another node at {brief(listed)}: name the consoles of both under nodes:" if listed else ""
        yield Key("jolokia", place.url, why or _describe(place), sure=not why)
        yield from filter(None, [_listener(place, proposal)])
    yield Key("username", wanted.username)
    yield Key("password", {"env": variable(place.site)}, "or {file: PATH}, {command: [ARGV]}")
    yield from proposal.brokers[place.site]


def _listener(place: BrokerAddress, proposal: Proposal) -> Key | None:
    listeners = next((key.value for key in proposal.brokers[place.site] if key.name == "clients"), [])
    return stomp(place, [str(listener) for listener in listeners] if isinstance(listeners, list) else [])


def _consoles(place: BrokerAddress) -> list[tuple[str, str]]:
    """List the consoles of the other nodes, given or guessed by a listed host, each with its evidence."""
    others = [(node.url, _describe(node)) for node in place.nodes]
    listed = place.probed.others if place.probed is not None else ()
    for host in listed[len(others) :]:
        guessed = place.url.replace(place.host, host, 1)
        others.append((guessed, f"the broker lists another node at {host}, but not the address of its console"))
    return [other for other in others if other[0] != place.url]


def _nodes(place: BrokerAddress, listener: Key | None) -> Iterator[tuple[dict[str, Json], str]]:
    """List the nodes, each with its evidence; the listener of a node that is not active is guessed after that of the
    active node."""
    others = _consoles(place)
    rows = [(place.url, _describe(place)), *others] if others else ()
    for name, (url, why) in zip(ascii_lowercase, rows, strict=False):
        row: dict[str, Json] = {"name": name, "jolokia": url}
        host = urlsplit(url).hostname or ""
        if listener is not None and (url == place.url or host != place.host):
            row["stomp"] = str(listener.value).replace(place.host, host, 1)
        yield row, why if url == place.url else f"{DECIDE}: {why}; its `stomp` is not known"


def _pair(at_first: BrokerAddress, at_second: BrokerAddress) -> str:
    """Name a pair by the brokers' name, or by the common prefix of both names."""
    names = [place.probed.broker for place in (at_first, at_second) if place.probed is not None]
    first = names[0]
    length = next(size for size in range(len(first), -1, -1) if all(name.startswith(first[:size]) for name in names))
    common = first[:length].rstrip("-_. ")
    return common if len(common) > 1 else "broker-1"


def _value(value: Json) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def write_example(topology: str, out: Path) -> Result:
    """Write the example of a topology, without asking brokers. Raises `UsageError`."""
    TOPOLOGIES.named(topology)
    _must_be_new(out)
    with writing(out, "Name another file: --out FILE."):
        write_text(out, (machine.shipped("examples") / f"{topology}.yaml").read_text(encoding="utf-8"))
    text = f"{out}: the example of {topology}; adapt it, then `dr-ctl validate`"
    return Result(ExitCode.OK, text, data=InitData(out, topology))


def write_examples(out: Path) -> Result:
    """Write the examples of dr-ctl (settings of each topology, units, alert rules, a dashboard) and the schemas of
    settings and documents. No existing file is overwritten."""
    from dr_ctl.application.documents import write_schemas  # noqa: PLC0415 - no other command needs them

    written = sorted(file for file in machine.shipped("examples").iterdir() if file.is_file())
    with new_folder(out):
        for file in written:
            copy(file, out / file.name)  # with the mode: some files are commands
        schemas = [f"schemas/{name}" for name in write_schemas(out / "schemas")]
    data = InitData(directory=out, files=[*(file.name for file in written), *schemas])
    return Result(ExitCode.OK, f"{len(written)} examples, and the schemas, are in {out}", data=data)


@contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Make a folder that this block fills, or remove it after an error. Raises `UsageError`."""
    if not out.is_dir() or any(out.iterdir()):
        _must_be_new(out, "Name a directory that is new or empty.")
    with writing(out, "Name a directory that can be written. Nothing was left there."):
        try:
            out.mkdir(parents=True, exist_ok=True)
            yield
        except OSError:
            rmtree(out, ignore_errors=True)
            raise


def with_verdict(written: Result, validated: Result) -> Result:
    verdict = {"exit_code": validated.exit_code, "summary": validated.summary, **document(validated.data)}
    text = "\n".join(filter(None, (written.text, validated.text or validated.closing or validated.summary)))
    steps = [*_next_steps(written.data.settings, written.data.to_decide)]
    closing = [f"Wrote {written.summary}. Next:", *(f"  {at}. {step}" for at, step in enumerate(steps, 1))]
    data = replace(written.data, validate=verdict, next=steps)
    findings = [*written.findings, *validated.findings]
    return replace(written, findings=findings, data=data, text=text, closing="\n".join(closing))


def _next_steps(out: Path, to_decide: Sequence[str]) -> Iterator[str]:
    dr_ctl = "dr-ctl" if out == Path("dr-ctl.yaml") else f"dr-ctl --config {out}"
    if to_decide:
        yield f"Edit the line(s) of {out} that say {DECIDE}: {len(to_decide)}."
    yield f"`{dr_ctl} validate`: fix what it marks with `!!`, until a swapover is ready."
    yield f"`{dr_ctl} monitor` in a second terminal; `{dr_ctl} init --systemd DIR` makes a service of it."
    yield f"`{dr_ctl} rehearse --on twin`, then `{dr_ctl} swapover --to SITE --dry-run`."
