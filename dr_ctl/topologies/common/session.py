"""A session reads and changes one broker. It opens its connections when they are first needed: one to the management
for readings, one for changes, and one to a STOMP listener as clients use it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Flag, auto
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self
from urllib.parse import urlsplit

from dr_ctl.core.errors import BrokerError, Passive, Unreachable
from dr_ctl.core.system import boottime_s, in_parallel
from dr_ctl.engine.lease import Store
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Failed, Outcome
from dr_ctl.jolokia.client import READ_S, Account, Change, Reader, Wire, make_changes
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Grouped, Installation, ManagedBroker, Node
from dr_ctl.settings.parts import Secret
from dr_ctl.stomp_io.address import Closed, Connected, Login, LoginResult, RoundTrip, StompAccount, parse_address
from dr_ctl.topologies.common.calls import Request, items
from dr_ctl.topologies.common.group import Family, Group, GroupWire, InactivityRecord, NobodyActive, Process
from dr_ctl.topologies.common.snapshot import V_co
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.topology import NodeState

A_QUEUE_S: Final = 0.001


class ReadScope(Flag):
    """The parts that a reading asks a broker for; parts about queues are those of the queues that are known."""

    STATE = auto()
    """The broker itself, its listeners, link and documents."""
    COUNTS = auto()
    """The messages in each queue, those in delivery, and those that were added."""
    REMOVED = auto()
    """The messages that left each queue."""
    PAUSES = auto()
    QUEUES = auto()
    """All queues with all attributes."""
    CLIENTS = auto()
    RIGHTS = auto()
    LIMITS = auto()
    """The obstacles to clients behind open listeners that the broker's state does not show."""
    OUTFLOW = auto()
    """Only the role, the links and the outflows, by the names of an earlier reading."""


EVERYTHING: Final = ReadScope.STATE | ReadScope.QUEUES | ReadScope.CLIENTS | ReadScope.RIGHTS
FOR_PEOPLE: Final = EVERYTHING | ReadScope.LIMITS
FOR_HISTORY: Final = ReadScope.STATE | ReadScope.COUNTS | ReadScope.REMOVED | ReadScope.CLIENTS | ReadScope.RIGHTS
FOR_GATE: Final = ReadScope.STATE | ReadScope.COUNTS | ReadScope.CLIENTS
FOR_OPENING: Final = ReadScope.STATE | ReadScope.COUNTS | ReadScope.RIGHTS
FOR_FENCE: Final = ReadScope.STATE | ReadScope.CLIENTS | ReadScope.RIGHTS
FOR_PAUSES: Final = ReadScope.STATE | ReadScope.PAUSES


def stomp_account(installation: Installation, site: str, stomp: str, login: Login) -> StompAccount:
    address = parse_address(stomp)
    return StompAccount(address, login, installation.tls(site) if address.tls else None)


def account(
    installation: Installation, site: str, url: str, username: str | None, secret: Secret | None, password: str = ""
) -> Account:
    """Return the login for a console of that site. `password` is the secret, if it is resolved already."""
    settings = installation.settings.sites[site]
    parts = urlsplit(url)
    return Account(
        url=url,
        username=username or "",
        password=password or (resolve(secret, installation.file.parent) if secret is not None else ""),
        origin=settings.origin or f"{parts.scheme}://{parts.hostname or ''}",
        tls=installation.tls(site),
        source=secret.source if secret is not None else "the settings file",
    )


def change(request: Request) -> Change:
    return Change(str(request["bean"]), str(request["operation"]), tuple(items(request, "arguments")))


class Session(ABC, Generic[V_co]):
    """A broker of one site, with one process or several. A secret is resolved when it is first needed. Every method
    that asks the broker raises `BrokerError`. `fenced_by_listener` says that nobody can log in behind a fence."""

    fenced_by_listener: ClassVar[bool] = True
    readable_alone: ReadScope = ReadScope(0)
    """The scope that can be read without the rest; any other scope reads everything."""

    family: ClassVar[Family]
    settings_of: ClassVar[type[Any]]
    settings: ManagedBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path) -> None:
        """`documents` is the folder for documents of brokers that can keep none."""
        self.site, self.pair = site, pair
        settings = self.settings = installation.broker(site, pair, self.settings_of)
        nodes = settings.nodes if isinstance(settings, Grouped) else ()
        self.group = Group(
            f"{site}/{pair}",
            [Process(name, url, stomp, node) for (name, url, stomp), node in zip_longest(settings.processes, nodes)],
            self._opened,
            self._tried,
            self.family,
            settings.takeover if isinstance(settings, Grouped) else 0.0,
            InactivityRecord(documents / site / pair / "no-node-active.json"),
            documents / site / pair / "known-as",
        )
        self._installation, self._documents = installation, documents
        self.config = self._config()
        self._broker, self._password = settings.broker, ""
        self._reading: GroupWire | None = None
        self._changing: GroupWire | None = None
        # The newest reading, and the moment at which it began: its values are no older.
        self.newest: tuple[float, V_co] | None = None

    @classmethod
    def each(cls, installation: Installation, documents: Path) -> Callable[[str, str], Self]:
        """Return a function that opens the session of a broker by its site and pair."""
        return lambda site, pair: cls(installation, site, pair, documents)

    def _config(self) -> Config:
        """Return the broker's listeners and names by the settings; a topology adds its own."""
        stomp_port = parse_address(self.stomp).port if self.stomp is not None else None
        peer = self._installation.other(self.site)
        return Config(self.settings.clients, None, None, stomp_port=stomp_port, peer=peer)

    @abstractmethod
    def store(self) -> Store:
        """Return the broker's documents, on a connection of their own."""

    @staticmethod
    @abstractmethod
    def find_broker(reader: Reader, *, timeout_s: float) -> str:
        """Raises `BrokerError`."""

    @abstractmethod
    def _ask(self, broker: str, timeout_s: float) -> V_co: ...

    def _everything(self, timeout_s: float) -> V_co:
        if self.group.broker is not None:
            self._broker = self.group.broker
        elif self._broker is None:
            self._broker = self.find_broker(self.reader(), timeout_s=timeout_s)
        return self._ask(self._broker, timeout_s)

    def _reread(self, known: V_co, scope: ReadScope, timeout_s: float) -> V_co:  # type: ignore[misc] # its own
        """Read a scope that is readable alone; everything else stays as it was `known`."""
        raise NotImplementedError(scope)

    def _read_extra(self, view: V_co, _scope: ReadScope, _timeout_s: float) -> V_co:  # type: ignore[misc] # its own
        """Read the parts that need further questions."""
        return view

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        """Return the client acceptors whose flag says open, by one small reading."""
        view = self.read(ReadScope.OUTFLOW, timeout_s=timeout_s)
        return tuple(listener.name for listener in view.listeners if listener.started)

    @abstractmethod
    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        """Return for each queue its messages in delivery, and whether it is paused: the poll of a quiesce."""

    def uncovered(self) -> list[str]:
        return []

    def unapplied(self, *, timeout_s: float) -> int | None:
        return self.read(ReadScope.OUTFLOW, timeout_s=timeout_s).link.unapplied

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send the calls in their order, at once, and return an outcome for each. Raises `BrokerError`."""
        outcomes: list[Outcome] = []
        for is_own, group in groupby(calls, self.is_own):
            batch = [*group]
            outcomes += map(self.do, batch) if is_own else self._changed(batch)
        return outcomes

    def is_own(self, _call: Call) -> bool:
        return False

    def do(self, call: Call) -> Outcome:
        raise NotImplementedError(call.summary)

    def _changed(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send calls to every active node, on a separate connection: a change never waits for a reading."""
        if self._changing is None:
            self._changing = self.wire(every=True)
        answers = make_changes(self._changing, [change(call.request) for call in calls])
        return [Done("answered") if answer.error is None else Failed(str(answer.error)) for answer in answers]

    def close(self) -> None:
        for wire in (self._reading, self._changing):
            if wire is not None:
                wire.close()
        self.group.close()

    @property
    def stomp(self) -> str | None:
        return self.group.current.stomp

    @property
    def has_console(self) -> bool:
        return all(process.url for process in self.group.processes)

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(
            parse_address(process.stomp).host for process in self.group.processes if process.stomp is not None
        )

    def is_vacant(self, *, ask_again: bool = False) -> bool:
        """Say whether no node is active and one may become so. Only `ask_again` asks a node that was active just
        now."""
        try:
            self.group.active_nodes(ask_again=ask_again)
        except NobodyActive as error:
            return error.taking_over
        return False

    def refuses(self, error: BrokerError, *, within_s: float) -> bool:
        if not self.group.has_one_node:
            return all(reading.state is NodeState.REFUSES for reading in self.group.readings)
        if not (isinstance(error, Unreachable) and error.refused):
            return False
        return isinstance(self.try_login(timeout_s=within_s), Closed)

    def read(self, scope: ReadScope = EVERYTHING, *, timeout_s: float = READ_S) -> V_co:
        """Read these parts as they are now; other parts may be from the newest reading. Every node is asked for its
        state, the active node for these parts too. Of several active nodes, the one that lets clients in is read."""
        group, view, failure = self.group, None, None
        if group.has_one_node:
            return self._read(scope, timeout_s)
        last_active = group.last_active
        group.ask_nodes(group.last_active)
        if last_active is not None:
            try:
                view = self._read(scope, timeout_s)
            except BrokerError as error:
                failure = error
        active = group.collect_answers(last_active if view is not None else None)
        if failure is not None and active == [last_active] and not isinstance(failure, Passive | Unreachable):
            raise failure
        if view is None or len(active) > 1:
            views = [self._at(process, scope, timeout_s) for process in active]
            view = next((view for view in views if view.open), views[0])
        return replace(view, nodes=group.readings)

    def _at(self, process: Process, scope: ReadScope, timeout_s: float) -> V_co:
        """Read all parts of a node that was not read before."""
        self.group.last_active, self.newest = process, None
        self.config = self._config()
        return self._read(scope | EVERYTHING, timeout_s)

    def _read(self, scope: ReadScope, timeout_s: float) -> V_co:
        began, count = boottime_s(), len(self.newest_view.queues) if self.newest_view is not None else 0
        # A broker that is known to have very many queues gets more time, unless the caller sets a short limit.
        enough_s = timeout_s + count * A_QUEUE_S if timeout_s >= READ_S else timeout_s
        known = self.last_view() if scope is ReadScope.OUTFLOW else self.newest_view
        if known is None or scope not in self.readable_alone or EVERYTHING in scope:
            scope, view = scope | EVERYTHING, self._everything(enough_s)
        else:
            view = self._reread(known, scope, enough_s)
        if ReadScope.STATE in scope:
            self.newest = began, view
        return self._read_extra(view, scope, timeout_s)

    @property
    def newest_view(self) -> V_co | None:
        return self.newest[1] if self.newest is not None else None

    def last_view(self) -> V_co:
        """Return the last reading, for values that seldom change; read the broker if there is none."""
        return self.newest_view if self.newest_view is not None else self.read()

    def stomp_account(self) -> StompAccount | None:
        return self._listener(self.group.current)

    def try_login(self, *, timeout_s: float) -> LoginResult | None:
        """Log in once as a client, at each node that answers, if the settings name a STOMP address."""
        silent = {reading.name for reading in self.group.readings if reading.state is NodeState.UNKNOWN}
        first = self.group.current
        others = [process for process in self.group.processes if process is not first and process.name not in silent]
        attempts = [partial(self._tried, process, timeout_s) for process in (*others, first)]
        login_results = in_parallel(attempts, "log in", most=len(attempts))
        return next((result for result in login_results if isinstance(result, Connected)), login_results[-1])

    def as_client(self, act: Callable[..., RoundTrip], queue: str, **how: Any) -> RoundTrip | None:
        """Send or take messages of a queue over STOMP; return None where the settings name no address."""
        account = self.stomp_account()
        if account is None:
            return None
        return act(account, queue=self.destination(queue), **how)

    @staticmethod
    def destination(queue: str) -> str:
        return queue

    def _tried(self, process: Process, within_s: float) -> LoginResult | None:
        from dr_ctl.stomp_io.client import try_login  # noqa: PLC0415 - a reading does not need stomp.py

        account = self._listener(process)
        if account is None:
            return None
        return try_login(account.address, account.login, account.tls, timeout_s=within_s)

    def _listener(self, process: Process) -> StompAccount | None:
        if process.stomp is None:
            return None
        return stomp_account(self._installation, self.site, process.stomp, self.login(*self._login(process.node)))

    @staticmethod
    def login(user: str, password: str) -> Login:
        return Login(user, password)

    def _login(self, node: Node | None) -> tuple[str, str]:
        """Raises `SecretMissing`."""
        folder, username, secret = self._installation.file.parent, self.settings.username, None
        if node is not None:
            username, secret = node.username or username, node.password
        if secret is None and not self._password:
            self._password = resolve(self.settings.password, folder)
        return username, resolve(secret, folder) if secret is not None else self._password

    def _opened(self, process: Process) -> Wire:
        url, node = process.url, process.node
        if url is None:
            text = f"{self.site}/{self.pair}: the settings name no `jolokia:`, so nothing can be managed there"
            raise Unreachable(text, refused=False)
        username, password = self._login(node)
        secret = (node.password if node is not None else None) or self.settings.password
        return Wire(account(self._installation, self.site, url, username, secret, password))

    def wire(self, *, every: bool = False) -> GroupWire:
        """Open a connection to the management of the active node, or of `every` active node."""
        return GroupWire(self.group, every=every)

    def reader(self) -> Reader:
        if self._reading is None:
            self._reading = self.wire()
        return Reader(self._reading)
