"""The state of a lab, in `lab.json` in its directory: sites, ports, logins, processes."""

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
    """A broker of a site, or one of its nodes: ports by name, passwords, and the process, None while it does not run.
    `others` are the passwords of the kind's further users; `processor` stores ids of the peer's consumers, and outlives
    the broker."""

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
        """The name of the broker with all its nodes: the site's, with the pair's if that is not the first."""
        return self.name if self.pair == PAIR else f"{self.name}.{self.pair}"

    @property
    def broker(self) -> str:
        """The name of this node."""
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
        """The login of a further user."""
        return Login(user, self.others[user])


@dataclass(frozen=True, slots=True)
class LinkState:
    """The proxy of one direction of a link."""

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
    """The whole lab. `sites` are the brokers of both sites, pair by pair, with all their nodes, which share a store
    unless it `replicates`; `options` and `version` differ from the kind's; `forwards` are the queues that get messages
    published with MQTT; `beside` is a process that the brokers need."""

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
        """The names of each broker's nodes; a single node has an empty name."""
        return tuple(dict.fromkeys(site.node for site in self.sites))

    def brokers(self, name: str, pair: str | None = None, node: str | None = None) -> tuple[SiteState, ...]:
        """The brokers of a site with all their nodes, or those of the pair and node. UsageError where there is none."""
        result = tuple(
            site for site in self.sites if site.name == name and pair in (None, site.pair) and node in (None, site.node)
        )
        if not result:
            have = ", ".join(site.broker for site in self.sites)
            wanted = "/".join(part for part in (name, pair, node) if part)
            raise UsageError(f"the lab has no broker {wanted}; it has {have}")
        return result

    def site(self, name: str, pair: str | None = None, node: str | None = None) -> SiteState:
        """The broker of a site; by default of the first pair and node. UsageError where there is none."""
        return self.brokers(name, pair, node)[0]

    def other(self, name: str, pair: str | None = None) -> SiteState:
        site_state = self.site(name, pair)
        return next(site for site in self.sites if site.name != name and site.pair == site_state.pair)

    def with_site(self, site: SiteState) -> LabState:
        return replace(self, sites=tuple(site if item.broker == site.broker else item for item in self.sites))

    def with_link(self, link: LinkState) -> LabState:
        return replace(self, links=tuple(link if item.name == link.name else item for item in self.links))

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
