"""The twin: two sites with a simulated broker each per pair, joined by a topology, behind real ports on loopback.

A twin ends with its process, or at the end of a `with` block.
"""

import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import yaml

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import system
from dr_ctl_lab.twin import dump
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.console import ADMIN
from dr_ctl_lab.twin.direction import Direction, Mode
from dr_ctl_lab.twin.host import APP, Change, Host
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.kinds import KINDS, MIRROR
from dr_ctl_lab.twin.nodes import Layout, Nodes

SETTINGS: Final = "dr-ctl.yaml"
MARK: Final = "twin"
PAIR: Final = "orders-1"
POLL_S: Final = 0.01
OPENS_WITHIN_S: Final = 10.0
SINGLE_NODE: Final = Layout()
NODE_KEYS: Final = ("name", "jolokia", "stomp")  # settings of each node, not of the whole broker

B = TypeVar("B", bound=Broker)


class Twin:
    """A running twin. Methods that get a site without a pair act on all brokers of the site."""

    def __init__(
        self,
        directory: Path,
        kind: Kind,
        sites: tuple[str, str],
        pairs: Sequence[str],
        queues: Sequence[str],
        clock: Clock,
        layout: Layout,
    ) -> None:
        self.directory, self.kind, self.clock, self.layout = directory, kind, clock, layout
        self.sites, self.pairs, self.queues = sites, tuple(pairs), tuple(queues)
        self._changed = self._lock = system().condition()
        self._ended = False
        # Equal passwords at both sites: clients move with the service, and the link logs in at either.
        passwords = {user: secrets.token_urlsafe(18) for user in (APP, *kind.roles)}
        self._groups = {
            (site, pair): Nodes(
                site,
                pair,
                site if len(self.pairs) == 1 else f"{site}-{pair}",
                peer,
                layout=layout,
                kind=kind,
                changed=self._changed,
                users={
                    ADMIN: rf"{secrets.token_urlsafe(18)}\n:",
                    **passwords,
                },  # with characters that escapes must handle
                clock=clock,
                home=directory,
            )
            for site, peer in (sites, sites[::-1])
            for pair in self.pairs
        }
        self._directions: dict[tuple[str, str], Direction[Any]] = {
            (site, pair): kind.direction(self.nodes(site, pair).broker, self.nodes(peer, pair).broker)
            for site, peer in (sites, sites[::-1])
            for pair in self.pairs
        }
        self._copies: list[Direction[Any]] = []  # links of brokers that a split has made
        for (site, pair), nodes in self._groups.items():
            nodes.on_split = partial(self._join, self.nodes(self.other(site), pair).broker)

    @classmethod
    def up(
        cls,
        directory: Path,
        *,
        sites: tuple[str, str] = ("london", "paris"),
        serving: str | None = "london",
        queues: Sequence[str] = ("orders.in", "orders.out"),
        pairs: Sequence[str] = (PAIR,),
        delay_ms: float = 0.0,
        topology: str = MIRROR,
        clock: Clock | None = None,
        allowed_files: Collection[str] = (),
        layout: Layout = SINGLE_NODE,
    ) -> Self:
        """Start a twin and return when its brokers ship to each other, and `serving` lets clients in. Its directory is
        new or empty, but for `allowed_files`."""
        kind = cls.validate(topology, sites, serving, pairs, layout)
        directory = directory.resolve()
        if directory.exists() and any(path.name not in allowed_files for path in directory.iterdir()):
            raise UsageError(f"{directory} is not empty", remedy="Name another directory, or empty that one.")
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        twin = cls(directory, kind, sites, pairs, queues, clock or Clock(), layout)
        try:
            (directory / MARK).touch()
            for nodes in twin._groups.values():
                nodes.install(queues)
            twin._write_settings()
            for site in sites:
                twin.start(site)
            for direction in twin._directions.values():
                direction.start()
            twin.delay(delay_ms)
            twin.wait_mirrored()
            for site in sites if layout.nodes > 1 else ():
                twin.close_clients(site)
            if serving is not None:
                twin.open_clients(serving)
        except BaseException:
            twin.down()
            raise
        return twin

    @staticmethod
    def validate(
        topology: str, sites: tuple[str, str], serving: str | None, pairs: Sequence[str], layout: Layout = SINGLE_NODE
    ) -> Kind:
        """Return the kind. UsageError where no twin can have these sites, pairs and nodes."""
        if sites[0] == sites[1] or (serving is not None and serving not in sites):
            raise UsageError(
                f"sites {sites[0]} and {sites[1]}, serving {if_known(serving)}: two different sites, one of them "
                "serving"
            )
        kind = KINDS.named(topology)
        if kind.one_pair and len(pairs) > 1:
            raise UsageError(f"brokers that {kind.joined}: such a twin has one pair")
        if layout.nodes > 1 and kind.one_pair:
            raise UsageError(f"brokers that {kind.joined} are the nodes of one already: each of them is one process")
        return kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """End every broker and remove the directory. Does nothing when called again."""
        if self._ended:
            return
        self._ended = True
        for direction in (*self._directions.values(), *self._copies):
            direction.end()
        for nodes in self._groups.values():
            nodes.end()
        if (self.directory / MARK).exists():
            shutil.rmtree(self.directory)

    @property
    def settings_path(self) -> Path:
        return self.directory / SETTINGS

    @property
    def ledgers(self) -> Path:
        """The directory of the loads' ledgers."""
        path = self.directory / "ledgers"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def nodes(self, site: str, pair: str | None = None) -> Nodes:
        """The nodes of one broker; by default of the first pair."""
        result = self._groups.get((site, pair or self.pairs[0]))
        if result is None:
            raise UsageError(f"the twin has no broker {pair or ''} at {site}; its sites are {' and '.join(self.sites)}")
        return result

    def host(self, site: str, pair: str | None = None, node: str | None = None) -> Host:
        """The host of one node; by default of the active one, or of the first where none is active."""
        nodes = self.nodes(site, pair)
        if node is None:
            return next(iter(nodes.active), nodes.hosts[0])
        result = next((host for host in nodes.hosts if host.node == node), None)
        if result is None:
            known = " and ".join(host.node for host in nodes.hosts)
            raise UsageError(f"the broker at {site} has no node {node}; its nodes are {known}")
        return result

    def direction(self, site: str, pair: str) -> Direction[Any]:
        """The direction in which a site's broker ships to its peer."""
        return self._directions[site, pair]

    def brokers(self, kind: type[B]) -> list[B]:
        """The brokers of that class."""
        return [broker for broker in self._brokers() if isinstance(broker, kind)]

    def _brokers(self) -> list[Broker]:
        return [broker for nodes in self._groups.values() for broker in nodes.brokers]

    def other(self, site: str) -> str:
        return next(name for name in self.sites if name != site)

    def _site_nodes(self, site: str, pair: str | None) -> list[Nodes]:
        return [self.nodes(site, case) for case in ((pair,) if pair is not None else self.pairs)]

    def _hosts(self, site: str, pair: str | None, node: str | None) -> list[Host]:
        hosts = [host for nodes in self._site_nodes(site, pair) for host in nodes.hosts if node in (None, host.node)]
        if not hosts:
            raise UsageError(f"the twin has no node {if_known(node)} at {site}")
        return hosts

    def _join(self, peer: Broker, copy: Broker) -> None:
        direction = self.kind.direction(copy, peer)
        self._copies.append(direction)
        direction.start()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the twin's lock, so that nothing changes."""
        with self._lock:
            yield

    # faults and operations from outside; without a node they apply to every node

    def kill(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        """End brokers as by SIGKILL. Their ports refuse when this returns."""
        for host in self._hosts(site, pair, node):
            host.die()

    def start(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        """Start brokers that are down; clients are kept out."""
        for host in self._hosts(site, pair, node):
            host.start()

    def split(self, site: str, pair: str | None = None) -> None:
        """Make two nodes active that have no connection to each other."""
        with self._lock:
            self.nodes(site, pair).split()

    def freeze(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        """Ports accept, nothing answers."""
        for host in self._hosts(site, pair, node):
            host.freeze()

    def thaw(self, site: str, pair: str | None = None, node: str | None = None) -> None:
        for host in self._hosts(site, pair, node):
            host.thaw()

    def sicken(self, site: str, pair: str | None = None, node: str | None = None, *, sick: bool = True) -> None:
        """Let management answer HTTP 500 without JSON; clients and the mirror are still served."""
        for host in self._hosts(site, pair, node):
            host.sick = sick

    def swallow(self, site: str, pair: str | None = None, node: str | None = None, *, on: bool = True) -> None:
        """Drop packets: connections are neither accepted nor refused."""
        for host in self._hosts(site, pair, node):
            if on:
                host.swallow()
            else:
                host.thaw()

    def skew(self, site: str, ms: int, pair: str | None = None) -> None:
        """Set the brokers' clocks off by `ms`."""
        for nodes in self._site_nodes(site, pair):
            nodes.broker.skew_ms = ms

    def cut(self, site_from: str | None = None, mode: str = "refuse") -> None:
        """Cut the links that leave `site_from`, or all: `refuse`, `hang` or `accept`."""
        if mode not in {item.value for item in Mode if item is not Mode.OPEN}:
            raise UsageError(f"a link is cut by refuse, hang or accept, not by {mode!r}")
        self._set_mode(site_from, Mode(mode))

    def heal(self, site_from: str | None = None) -> None:
        self._set_mode(site_from, Mode.OPEN)

    def delay(self, ms: float, site_from: str | None = None) -> None:
        """Delay each direction of the links by `ms`."""
        with self._lock:
            for (site, _), direction in self._directions.items():
                if site_from in (None, site):
                    direction.delay_s = ms / 1000

    def _set_mode(self, site_from: str | None, mode: Mode) -> None:
        for (site, _), direction in self._directions.items():
            if site_from in (None, site):
                direction.set(mode)

    def open_clients(self, site: str, pair: str | None = None) -> None:
        """Let clients in, as a person at the console could; the other site is not checked. Return once it serves."""
        with self._changed:
            brokers = [nodes.broker for nodes in self._site_nodes(site, pair)]
            for broker in brokers:
                broker.let_clients_in()
            self._wait(lambda: all(broker.serves for broker in brokers), OPENS_WITHIN_S, f"{site} does not serve")

    def close_clients(self, site: str, pair: str | None = None) -> None:
        with self._lock:
            for nodes in self._site_nodes(site, pair):
                nodes.broker.keep_clients_out()

    def pause(self, site: str, queue: str, pair: str | None = None) -> None:
        """Pause a queue until it is resumed or its broker dies."""
        with self._lock:
            for nodes in self._site_nodes(site, pair):
                nodes.broker.queues[queue].paused = True

    def wait_mirrored(self, within_s: float = 5.0) -> None:
        """Wait until all links are attached and empty; EnvironmentFault after `within_s`."""
        brokers = self._brokers()
        with self._changed:
            self._wait(
                lambda: all(broker.attached and broker.is_settled for broker in brokers),
                within_s,
                "the twin's links do not ship",
            )

    def _wait(self, condition: Callable[[], bool], within_s: float, message: str) -> None:
        until = self.clock.now_s() + within_s
        # A link's progress notifies nobody, so poll.
        while not condition():
            if self.clock.now_s() > until:
                raise EnvironmentFault(f"{message} after {within_s:g} s")
            self._changed.wait(self.clock.outside_s(POLL_S))

    # observations

    def dump(self) -> dict[str, Any]:
        """The settable state and the messages of every broker, read at one moment."""
        with self._lock:
            return {
                f"{site}/{pair}{'/copy' * number}": {
                    "settable": dump.settable(broker),
                    "messages": dump.messages(broker),
                }
                for (site, pair), nodes in self._groups.items()
                for number, broker in enumerate(nodes.brokers)
            }

    def settable(self) -> dict[str, Any]:
        return {name: state["settable"] for name, state in self.dump().items()}

    def changes(self) -> list[Change]:
        """All changing requests, host by host, in the order of their arrival."""
        with self._lock:
            hosts = [host for nodes in self._groups.values() for host in nodes.hosts]
            return [change for host in hosts for change in host.changes]

    def depth(self, site: str, queue: str, pair: str | None = None) -> int:
        """Count the messages of a queue; 0 where it does not exist."""
        with self._lock:
            known = self.host(site, pair).broker.queues.get(queue)
            return len(known.messages) if known is not None else 0

    def left(self, queues: Sequence[str]) -> int | None:
        """Count the messages in the queues where clients are served; None if a queue is served nowhere."""
        with self._lock:
            brokers = self._brokers()
            serving = {queue: [broker for broker in brokers if broker.serves_queue(queue)] for queue in queues}
            depths = [broker.waiting(queue) for queue, brokers in serving.items() for broker in brokers]
            return sum(depths) if all(serving.values()) else None

    def _broker_settings(self, nodes: Nodes) -> dict[str, Any]:
        """The settings of a broker, with those of each node where it has several."""
        rows = [{"name": host.node, **self.kind.settings(host)} for host in nodes.hosts]
        if not nodes.is_group:
            return {key: text for key, text in rows[0].items() if key != "name"}
        common = {key: text for key, text in rows[0].items() if key not in NODE_KEYS}
        cluster = {"cluster": [nodes.layout.listener]} if nodes.has_cluster_listener else {}
        described = [{key: row[key] for key in NODE_KEYS} for row in rows]
        if "sync" in common:  # one login, and at each node an address
            described = [{**value, "sync": row["sync"]["stomp"]} for value, row in zip(described, rows, strict=True)]
            common["sync"] = {key: text for key, text in common["sync"].items() if key != "stomp"}
        return {**common, "nodes": described, "takeover": f"{nodes.layout.takeover_s * 2:g}s", **cluster}

    def _write_settings(self) -> None:
        folder = self.directory / "secrets"
        folder.mkdir(mode=0o700)
        sites: dict[str, Any] = {}
        for (site, pair), nodes in self._groups.items():
            host = nodes.hosts[0]
            for user in (ADMIN, *self.kind.roles):
                secret = self.directory / (host.secret if user == ADMIN else f"{host.secret}.{user}")
                secret.touch(mode=0o600)
                secret.write_text(host.broker.users[user] + "\n", encoding="utf-8")
            broker = {"name": pair, "password": {"file": host.secret}, **self._broker_settings(nodes)}
            sites.setdefault(site, {"brokers": [], **self.kind.site})["brokers"].append(broker)
        document = {
            "version": 1,
            "name": self.directory.name,
            "topology": self.kind.topology,
            "sites": sites,
            **self.kind.installation,
            "objectives": {"loss": {"messages": 0, "age": "30s"}, "recovery": "2m"},
            "history": {"path": "history"},
        }
        text = yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
        self.settings_path.write_text(f"# A twin: simulated brokers on this machine.\n{text}", encoding="utf-8")
        self.settings_path.chmod(0o600)
