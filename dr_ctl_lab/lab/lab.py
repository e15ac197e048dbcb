"""A lab: two sites with real brokers on this machine, a proxy on each link, everything in one directory.

The processes outlive the command that started them; `lab.json` lists them. A lab that fails to start is removed. As a
context manager, `Lab` is removed at the end of the block.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from dr_ctl.core.errors import BrokerError, EnvironmentFault, UsageError
from dr_ctl.core.notation import if_known
from dr_ctl.stomp_io.address import Address
from dr_ctl_lab.lab import daemons, distribution, layout, loads, processor, settings_file, status, wire
from dr_ctl_lab.lab import state as lab_state
from dr_ctl_lab.lab.clients.client import name_of
from dr_ctl_lab.lab.fanout import REQUIRED_FILE, FanOut
from dr_ctl_lab.lab.ids import SHARED, Ids, IdStore, store_at
from dr_ctl_lab.lab.kinds import KINDS, MIRROR
from dr_ctl_lab.lab.ports import release_ports
from dr_ctl_lab.lab.spec import BrokerSpec
from dr_ctl_lab.lab.stage import Loadable
from dr_ctl_lab.lab.started import wait_until
from dr_ctl_lab.lab.state import LabState, LinkState, SiteState
from dr_ctl_lab.lab.traffic import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.spec import Admin, Kind, Options

UP_S = 180.0  # a first node that comes back copies the store before it is active: 40 s to 87 s on two busy cores
DOWN_S = 15.0
SITE_NAME = re.compile(r"[a-z][a-z0-9-]*")
MAX_PAIRS = 4
MAX_NODES = 2


class Lab(Loadable):
    """A running lab. Methods store changes of processes before they return."""

    def __init__(self, directory: Path, state: LabState) -> None:
        self.directory = directory
        self.state = state

    @classmethod
    def up(
        cls,
        directory: Path,
        *,
        sites: tuple[str, str] = ("london", "paris"),
        serving: str | None = "london",
        queues: Sequence[str] = ("orders.in", "orders.out"),
        delay_ms: float = 0.0,
        edit: Callable[[str], str] | None = None,
        topology: str = MIRROR,
        options: Options | None = None,
        pairs: int = 1,
        nodes: int = 1,
        replicates: bool = False,
        version: str = "",
    ) -> Self:
        """Start a new lab; return when all brokers are active, their links ship, and `serving` lets clients in.

        `delay_ms` is for each direction of each link. `edit` changes each broker's configuration before the first
        start; `options` are those of the kind; `pairs` is the number of brokers of a site, `nodes` of the processes of
        a broker, `version` is the brokers', if not the kind's. EnvironmentFault, with the end of the log, after three
        minutes.
        """
        for name in sites:
            if not SITE_NAME.fullmatch(name):
                raise UsageError(f"{name!r} is no name for a site: small letters, digits and hyphens")
        if sites[0] == sites[1] or (serving is not None and serving not in sites):
            raise UsageError(
                f"sites {sites[0]} and {sites[1]}, serving {if_known(serving)}: two different sites, one of them "
                "serving"
            )
        if not 1 <= pairs <= MAX_PAIRS:
            raise UsageError(f"{pairs} pairs: a lab has one to {MAX_PAIRS}, each broker takes half a gigabyte")
        _check_nodes(KINDS.named(topology), topology, nodes, replicates=replicates)
        directory = directory.resolve()
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty", remedy="`dr-ctl lab down` ends a lab that is up there.")
        kind = KINDS.named(topology)
        wanted = kind.options(options or {})
        home = distribution.obtain(kind.distribution.at(version)) if kind.distribution is not None else directory
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        lab = cls(
            directory,
            layout.new(
                directory, sites, queues, topology, wanted, pairs, nodes, replicates=replicates, version=version
            ),
        )
        try:
            lab._save()
            lab._start_links(delay_ms)
            specs = lab._specs(edit)
            lab._create(home, specs)
            lab._start_beside(specs)
            lab._start_brokers([spec.site for spec in specs if kind.links_at_boot(spec)], first=serving)
            settings_file.write(directory, lab.state)
            lab._start_processors()
            for broker in lab._active_nodes([site for site in lab.state.sites if site.node and site.name != serving]):
                lab._admin(broker).keep_out()
            if serving is not None:
                lab.open_clients(serving)
        except BaseException:
            lab.down()
            raise
        return lab

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open a running lab; UsageError where there is none."""
        directory = directory.resolve()
        return cls(directory, lab_state.load(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def settings_path(self) -> Path:
        return self.directory / settings_file.NAME

    @property
    def ledgers(self) -> Path:
        """The directory of the loads' ledgers."""
        path = self.directory / "ledgers"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    @property
    def queues(self) -> tuple[str, ...]:
        return self.state.queues

    @property
    def pairs(self) -> tuple[str, ...]:
        return self.state.pairs

    def site(self, name: str, pair: str | None = None, node: str | None = None) -> SiteState:
        """Ports, addresses and logins of a broker; by default of the first pair and node."""
        return self.state.site(name, pair, node)

    def instance(self, site: str, pair: str | None = None, node: str | None = None) -> Path:
        """The directory of the broker; its logs are in `log`."""
        return self._home(self.site(site, pair, node))

    def admin(self, site: str, pair: str | None = None, *, timeout_s: float = 5.0) -> Admin:
        """Management of a site's broker, at its active node."""
        [broker] = self._active_nodes(self.state.brokers(site, self.site(site, pair).pair))
        return self._admin(broker, timeout_s=timeout_s)

    def pid(self, site: str, pair: str | None = None, node: str | None = None) -> int | None:
        """The pid of the broker; None where it does not run."""
        process = self.site(site, pair, node).process
        return process.pid if process is not None and process.alive() else None

    def processes(self) -> list[daemons.Process]:
        """All processes of the lab."""
        sites, links = self.state.sites, self.state.links
        started = [site.process for site in sites] + [link.process for link in links]
        started += [*(site.processor for site in sites), self.state.beside]
        return [item for item in started if item is not None]

    def down(self) -> None:
        """End every process of the lab, loads and brokers first, and remove its directory."""
        self._reload()
        loads.end_all(self.directory)
        running = [site.process for site in self.state.sites if site.process is not None]
        with ThreadPoolExecutor(max_workers=2 * MAX_PAIRS) as pool:
            list(pool.map(lambda process: daemons.end(process, within_s=DOWN_S), running))
        beside = [link.process for link in self.state.links] + [site.processor for site in self.state.sites]
        beside.append(self.state.beside)
        for process in beside:
            if process is not None:
                daemons.end(process, within_s=2)
        release_ports(self.directory)
        if (self.directory / lab_state.FILE).exists():
            shutil.rmtree(self.directory)

    def kill(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        """End a site's brokers with SIGKILL; return when their ports refuse. With a pair or a node, only that broker or
        process, here and below."""
        self._end(daemons.kill, site, pair, node)

    def stop(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        """End a site's brokers with SIGTERM."""
        self._end(partial(daemons.end, within_s=DOWN_S), site, pair, node)

    def _end(self, end: Callable[[daemons.Process], None], site: str, pair: str | None, node: str | None) -> None:
        """End passive nodes first, so that none takes over."""
        self._reload()
        for broker in reversed(self.state.brokers(site, pair, node)):
            if broker.process is not None:
                end(broker.process)
            self._update(replace(broker, process=None))

    def start(self, site: str, pair: str | None = None, node: str | None = None, *, wait: bool = True) -> None:
        """Start a site's brokers that do not run; wait until they are active or passive. Clients are kept out, except
        by brokers of several nodes, whose listeners open at every start."""
        self._reload()
        for letter in (node,) if node is not None else self.state.nodes:
            for broker in self.state.brokers(site, pair, letter):
                if broker.process is None or not broker.process.alive():
                    self._update(replace(broker, process=self._kind.start(self._home(broker))))
            if wait:
                self._wait_active(self.state.brokers(site, pair, letter), time.monotonic() + UP_S)

    def freeze(self, site: str, node: str | None = None) -> None:
        """Stop a site's brokers with SIGSTOP: ports accept, and get no answer."""
        self._signal(site, node, signal.SIGSTOP)

    def thaw(self, site: str, node: str | None = None) -> None:
        self._signal(site, node, signal.SIGCONT)

    def cut(self, site_from: str | None = None, mode: str = "refuse") -> None:
        """Cut the links that leave `site_from`, or both: `refuse`, `hang` or `accept` (see the module `wire`)."""
        if mode not in {item.value for item in wire.Mode if item is not wire.Mode.OPEN}:
            raise UsageError(f"a link is cut by refuse, hang or accept, not by {mode!r}")
        self._configure_links(site_from, {"mode": mode})

    def heal(self, site_from: str | None = None) -> None:
        """Let the links work again; held connections are reset, so that brokers redial at once."""
        self._configure_links(site_from, {"mode": wire.Mode.OPEN.value})

    def delay(self, ms: float, site_from: str | None = None) -> None:
        """Delay each direction of the links by `ms`; the round trip grows by twice that."""
        self._configure_links(site_from, {"delay_ms": ms})

    def open_clients(self, site: str) -> None:
        """Let clients in at a site, as a person at its console could; the other site is not checked."""
        for broker in self._active_nodes(self.state.brokers(site)):
            self._admin(broker).open_clients()

    def close_clients(self, site: str) -> None:
        for broker in self._active_nodes(self.state.brokers(site)):
            self._admin(broker).close_clients()

    def create_queue(self, name: str) -> None:
        """Create a queue at every broker, and store its name."""
        for broker in self._active_nodes(self.state.sites):
            self._admin(broker).create_queue(name)
        if name not in self.state.queues:
            self.state = replace(self.state, queues=(*self.state.queues, name))
            self._save()

    def wait_mirrored(self, within_s: float = 30.0) -> None:
        """Wait until all links are attached; EnvironmentFault after `within_s`."""
        self._wait_links(self._active_nodes(self.state.sites), time.monotonic() + within_s)

    def target(self, pair: str | None = None) -> Target:
        """The addresses for clients of a pair, for a `Load`."""
        name = pair or self.pairs[0]
        brokers = [broker for broker in self.state.sites if broker.pair == name]
        sites = tuple((broker.name, broker.stomp) for broker in brokers)  # of every node
        stores = {broker.name: self.id_store(broker.name, name) for broker in brokers}
        kind, fan_out = self._kind, None
        ids = Ids(stores, kind.ids.address) if kind.ids is not None else None
        if kind.fan_out is not None:
            listeners = tuple((broker.name, Address("127.0.0.1", broker.ports[kind.fan_out])) for broker in brokers)
            fan_out = FanOut(listeners, self.directory / REQUIRED_FILE)
            ids = Ids(dict.fromkeys(stores, store_at(self.directory, SHARED)), None)
        return Target(
            sites,
            self.state.sites[0].app,
            partial(self._count_remaining, name),
            ids,
            kind.dialect,
            fan_out,
            protocols=tuple(protocol for protocol in kind.protocols if protocol not in kind.lacks(self._version)),
            variations=kind.variations,
            home=distribution.obtain(kind.distribution.at(self.state.version))
            if kind.distribution is not None
            else None,
            forwards=frozenset(self.state.forwards),
        )

    def id_store(self, site: str, pair: str | None = None) -> Path:
        """The path of a site's store of processed ids."""
        return store_at(self.directory, self.site(site, pair).broker)

    def status(self) -> status.LabStatus:
        """Read the status. A part without an answer within two seconds counts as not answering."""
        return status.read(self.state)

    def _reload(self) -> None:
        """Read the state again: another command may have changed it."""
        if (self.directory / lab_state.FILE).exists():
            self.state = lab_state.load(self.directory)

    def _start_links(self, delay_ms: float) -> None:
        for link in self.state.links:
            listener = self.site(link.target, link.pair, link.node).ports[self._kind.link_target or ""]
            argv = [
                sys.executable, "-m", wire.__name__, "--port", str(link.port), "--control", str(link.control),
                "--to", f"127.0.0.1:{listener}", "--delay-ms", str(delay_ms),
            ]  # fmt: skip
            process = daemons.launch(argv, cwd=self.directory, log=self.directory / f"wire-{link.name}.log")
            self._update(replace(link, process=process))

    def _specs(self, edit: Callable[[str], str] | None) -> list[BrokerSpec]:
        links = self.state.links
        return [
            BrokerSpec(
                site=site,
                peer=self.state.other(site.name, site.pair),
                link_ports=[link.port for link in links if (link.source, link.pair) == (site.name, site.pair)],
                queues=self.queues,
                forwards=self.state.forwards,
                options=self.state.options,
                edit=edit,
                nodes=self.state.brokers(site.name, site.pair) if site.node else (),
                replicates=self.state.replicates,
                store=self.directory / f"{site.group}-store",
                version=self._version,
            )
            for site in self.state.sites
        ]

    def _create(self, home: Path, specs: Sequence[BrokerSpec]) -> None:
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda spec: self._kind.create(home, self._home(spec.site), spec), specs))

    def _start_beside(self, specs: Sequence[BrokerSpec]) -> None:
        if self._kind.beside is not None:
            self.state = replace(self.state, beside=self._kind.beside(self.directory, specs))
            self._save()

    def _start_brokers(self, linked: Sequence[SiteState], *, first: str | None) -> None:
        names = dict.fromkeys(broker.name for broker in self.state.sites)
        for node in self.state.nodes:
            until = time.monotonic() + UP_S
            for name in sorted(names, key=lambda name: name != first):
                self.start(name, node=node, wait=self._kind.is_waiting is not None)
            self._wait_active([broker for broker in self.state.sites if broker.node == node], until)
        self._wait_links([self.site(broker.name, broker.pair) for broker in linked], until)
        for name in self.queues:
            if not self._kind.made_at_once(name):
                self.create_queue(name)
        for broker in self._active_nodes(self.state.sites):
            self._admin(broker).prepare()
        # Again: a link may redial until the peer has the new queues.
        self._wait_links([self.site(broker.name, broker.pair) for broker in linked], until)

    def _start_processors(self) -> None:
        ids = self._kind.ids
        if ids is None:
            return
        (self.directory / "ids").mkdir(mode=0o700)
        for broker in self.state.sites:
            store = self.id_store(broker.name, broker.pair)
            IdStore(store).close()  # created before several open it
            argv = [
                sys.executable, "-m", processor.__name__, "--port", str(broker.ports[ids.acceptor]), "--user", ids.user,
                "--password-file", str(settings_file.secret(self.directory, broker, ids.user)),
                "--queue", ids.address, "--store", str(store),
            ]  # fmt: skip
            log = self.directory / f"processor-{broker.broker}.log"
            self._update(replace(broker, processor=daemons.launch(argv, cwd=self.directory, log=log)))

    def _wait_active(self, started: Sequence[SiteState], until: float) -> None:
        for broker in started:
            wait_until("active", partial(self._is_up, broker), self._logs(broker), broker, until)

    def _is_up(self, broker: SiteState) -> bool:
        """Say whether it is active, or passive by its log or console."""
        group = self._kind.group
        is_waiting = group.is_waiting if group is not None and broker.node else self._kind.is_waiting
        if is_waiting is not None and is_waiting(self._home(broker)):
            return True
        return self._admin(broker, timeout_s=2).active() or broker.node not in ("", lab_state.FIRST)

    def _active_nodes(self, brokers: Sequence[SiteState]) -> list[SiteState]:
        """The active node of each broker; the first node where none is active."""
        nodes: dict[str, list[SiteState]] = {}
        for broker in brokers:
            nodes.setdefault(broker.group, []).append(broker)
        return [next(filter(self._is_active, node), node[0]) if len(node) > 1 else node[0] for node in nodes.values()]

    def _is_active(self, node: SiteState) -> bool:
        try:
            return self._admin(node, timeout_s=2).active()
        except BrokerError:
            return False

    def _wait_links(self, sources: Sequence[SiteState], until: float) -> None:
        for broker in sources:
            peer = self.state.other(broker.name, broker.pair).name
            connected = partial(self._admin(broker, timeout_s=2).link_attached, peer)
            wait_until(f"link to {peer}", connected, self._logs(broker), broker, until)

    @property
    def _kind(self) -> Kind:
        return KINDS.named(self.state.topology)

    @property
    def _version(self) -> tuple[int, ...]:
        """The brokers' version; empty without a distribution."""
        distribution_of_kind = self._kind.distribution
        return distribution_of_kind.at(self.state.version).numbers if distribution_of_kind is not None else ()

    def _logs(self, broker: SiteState) -> list[Path]:
        return [self._home(broker) / name for name in self._kind.logs]

    def _home(self, broker: SiteState) -> Path:
        return self.directory / broker.broker

    def _admin(self, broker: SiteState, *, timeout_s: float = 5.0) -> Admin:
        return self._kind.admin(broker, timeout_s=timeout_s)

    def _count_remaining(self, pair: str, queues: Sequence[str]) -> int | None:
        """Count the messages in a pair's queues where clients are served; None if a queue is served nowhere."""
        value: dict[str, int] = {}
        for broker in self.state.sites:
            if broker.pair != pair:
                continue
            admin = self._admin(broker, timeout_s=2)
            try:
                if served := admin.served(queues):
                    depths = admin.depths()
                    value |= {name: value.get(name, 0) + depths.get(name_of(name), 0) for name in served}
            except BrokerError:
                continue
        return sum(value.values()) if value.keys() >= set(queues) else None

    def _signal(self, site: str, node: str | None, signum: signal.Signals) -> None:
        self._reload()
        for broker in self.state.brokers(site, node=node):
            if broker.process is None or not daemons.send(broker.process, signum):
                raise EnvironmentFault(f"the broker {broker.broker} does not run")

    def _configure_links(self, site_from: str | None, change: Mapping[str, str | float]) -> None:
        if not self.state.links:
            raise UsageError(f"no link joins the sites of a lab of {self.state.topology}")
        if site_from is not None:
            self.site(site_from)
        for link in self.state.links:
            if site_from in {None, link.source}:
                wire.request(link.control, change)

    def _update(self, changed: SiteState | LinkState) -> None:
        if isinstance(changed, SiteState):
            self.state = self.state.with_site(changed)
        else:
            self.state = self.state.with_link(changed)
        self._save()

    def _save(self) -> None:
        self.state.save(self.directory)


def _check_nodes(kind: Kind, topology: str, nodes: int, *, replicates: bool) -> None:
    """UsageError where the kind has no such nodes."""
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"{nodes} nodes: a broker of a lab has one or {MAX_NODES}")
    if nodes > 1 and kind.group is None:
        raise UsageError(f"a lab of {topology} has brokers of one node")
    if replicates and not (nodes > 1 and kind.group is not None and kind.group.replicates):
        raise UsageError("--replication: nodes of Artemis brokers replicate their store", remedy="Add --nodes 2.")
