"""Memory of a lab, in `lab.json` in its directory: sites, ports, logins, processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from dr_ctl.core.errors import UsageError
from dr_ctl.engine.runs import write_text
from dr_ctl.stomp_io.address import Address, Login
from dr_ctl_lab.lab.daemons import Process
from dr_ctl_lab.lab.kinds import MIRROR

if TYPE_CHECKING:
    from pathlib import Path

FILE = "lab.json"
ADMIN, APP = "admin", "app"
PAIR = "orders-1"
FIRST = "a"  # of several nodes: the one that starts as primary


@dataclass(frozen=True, slots=True)
class SiteState:
    """A broker of a site, or one of its nodes: ports by name, who may log in, and the process, None while it is not
    running.

    `others` are the passwords of whoever else its kind has; `processor` is what applies the ids that the peer's
    consumers processed, where the kind has that: a processor outlives its broker.
    """

    name: str
    ports: Mapping[str, int]
    admin_password: str = field(repr=False)
    app_password: str = field(repr=False)
    process: Process | None = None
    pair: str = PAIR
    others: Mapping[str, str] = field(default_factory=dict, repr=False)
    processor: Process | None = None
    node: str = ""  # where the broker has several: a, b, …

    @property
    def group(self) -> str:
        """The name of all its nodes: the site's, with the pair's where that is not the first. No site's name has a
        dot."""
        return self.name if self.pair == PAIR else f"{self.name}.{self.pair}"

    @property
    def broker(self) -> str:
        """The name of this one."""
        return self.group if self.node in ("", FIRST) else f"{self.group}.{self.node}"

    @property
    def stomp(self) -> Address:
        return Address("127.0.0.1", self.ports["clients"])

    @property
    def admin(self) -> Login:
        return Login(ADMIN, self.admin_password)

    @property
    def app(self) -> Login:
        return Login(APP, self.app_password)

    def login(self, user: str) -> Login:
        """Login of whoever else may log in, by name."""
        return Login(user, self.others[user])


@dataclass(frozen=True, slots=True)
class LinkState:
    """The proxy on the way from one site's broker to the other's mirror acceptor."""

    source: str
    target: str
    port: int
    control: int
    process: Process | None = None
    pair: str = PAIR
    node: str = ""  # of the target

    @property
    def name(self) -> str:
        pair = "" if self.pair == PAIR else f".{self.pair}"
        return f"{self.source}-{self.target}{pair}{f'.{self.node}' if self.node else ''}"


@dataclass(frozen=True, slots=True)
class LabState:
    """The whole lab; changed by replacing, written whole. `sites` are the brokers of both, pair by pair, with all their
    nodes, which share a store unless it `replicates`; `options`
    are those of its kind, `version` is the brokers', where it is not that of the kind, `forwards` are the queues that
    take what is published with MQTT, `beside` is what its brokers need to run, if anything."""

    name: str
    sites: tuple[SiteState, ...]
    links: tuple[LinkState, ...]
    queues: tuple[str, ...]
    topology: str = MIRROR
    options: Mapping[str, Any] = field(default_factory=dict)
    forwards: tuple[str, ...] = ()
    beside: Process | None = None
    replicates: bool = False
    version: str = ""

    @property
    def pairs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(site.pair for site in self.sites))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of each broker; one without a name where it has one."""
        return tuple(dict.fromkeys(site.node for site in self.sites))

    def brokers(self, name: str, pair: str | None = None, node: str | None = None) -> tuple[SiteState, ...]:
        """The brokers of a site with all their nodes, or its one of that pair, and that node. UsageError where there is
        none."""
        result = tuple(
            site for site in self.sites if site.name == name and pair in (None, site.pair) and node in (None, site.node)
        )
        if not result:
            have = ", ".join(site.broker for site in self.sites)
            asked = "/".join(case for case in (name, pair, node) if case)
            raise UsageError(f"the lab has no broker {asked}; it has {have}")
        return result

    def site(self, name: str, pair: str | None = None, node: str | None = None) -> SiteState:
        """The broker of a site, of its first pair and first node unless others are asked for. UsageError where there is
        none."""
        return self.brokers(name, pair, node)[0]

    def other(self, name: str, pair: str | None = None) -> SiteState:
        at_site = self.site(name, pair)
        return next(site for site in self.sites if site.name != name and site.pair == at_site.pair)

    def with_site(self, site: SiteState) -> LabState:
        return replace(self, sites=tuple(site if one.broker == site.broker else one for one in self.sites))

    def with_link(self, link: LinkState) -> LabState:
        return replace(self, links=tuple(link if one.name == link.name else one for one in self.links))

    def save(self, directory: Path) -> None:
        write_text(directory / FILE, json.dumps(asdict(self), indent=2, default=str))


def load(directory: Path) -> LabState:
    """Read a lab's state; UsageError where the directory holds none."""
    try:
        document = json.loads((directory / FILE).read_text(encoding="utf-8"))
        return TypeAdapter(LabState).validate_python(document)
    except FileNotFoundError:
        raise UsageError(f"{directory} holds no lab", remedy="`dr-ctl lab up` starts one.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{directory / FILE} is not a lab's state: {error}") from error
