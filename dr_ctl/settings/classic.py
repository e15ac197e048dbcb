"""Settings of ActiveMQ Classic brokers, and of two sites of them: joined by network connectors and an agent, by one
store that they share (the broker with its lock serves, the other waits), or by producers alone, who write each message
to both."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dr_ctl.settings.model import Grouped, ManagedBroker, Node, Settings, Site, SiteName
from dr_ctl.settings.parts import Duration, HttpAddress, IdStore, Names, Secret, Section, StompAddress, Words, listed


class AgentAccess(Section):
    """A listener for dr-ctl and the agent, which stays open when clients are kept out."""

    stomp: StompAddress | None = Field(
        default=None,
        description="address of a transport connector that no client uses; required where no node has its own",
    )
    username: str = Field(description="the agent's login")
    password: Secret = Field(description="the agent's password")
    connector: str = Field(description="the name of that transport connector; never one of `clients`")


class ClassicBroker(ManagedBroker):
    """A Classic broker of a site, whatever joins it to its peer. Without a console (Amazon MQ) figures come from the
    statistics plugin over STOMP, and what needs management is done by hooks."""

    needs_console = False

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if not self.addresses:
            raise ValueError("needs jolokia, or stomp where there is no Jolokia (Amazon MQ)")
        return self


class ClassicNode(Node):
    """One process of a broker that has several; only the master has listeners."""

    sync: StompAddress | None = Field(default=None, description="the address of `sync` at that node")


class SyncedBroker(ClassicBroker, Grouped):
    """A broker whose messages dr-ctl itself reads."""

    nodes: Annotated[tuple[ClassicNode, ...], BeforeValidator(listed)] = Field(
        default=(), description="the nodes of a broker that has several, instead of its `jolokia` and `stomp`"
    )
    sync: AgentAccess | None = Field(
        default=None, description="how dr-ctl itself, and the agent of `sync`, connect to it"
    )

    @model_validator(mode="after")
    def _synced(self) -> Self:
        if self.sync is not None and self.sync.stomp is None and not (self.nodes and all(map(self.at, self.nodes))):
            raise ValueError("sync: needs stomp, or each node its own sync")
        return self

    def at(self, node: Node | None) -> str | None:
        own = node.sync if isinstance(node, ClassicNode) else None
        return own or (self.sync.stomp if self.sync is not None else None)


class BrokerSyncBroker(SyncedBroker):
    """A broker of a pair that copies over a network connector."""

    network: str | None = Field(
        default=None, description="network connector to the peer; without: recognized by the peer's name"
    )
    bridge: Names | None = Field(
        default=None,
        description="transport connectors that the peer's network connector uses; without: the only OpenWire one that "
        "neither clients nor the agent use",
    )
    copies: str = Field(
        default="{queue}.DR",
        pattern=r"^[^{}]*\{queue\}[^{}]*$",
        description="the name of the queue here that holds the copies of `{queue}` until they are shipped",
    )


class ClassicBrokerSync(Settings):
    """An installation whose sites are joined by composite queues, network connectors and the agent."""

    apart: ClassVar = (("clients", "bridge"),)
    takeover_ends_quarantine: ClassVar = True

    topology: Literal["classic-brokersync"]
    sites: dict[SiteName, Site[BrokerSyncBroker]]


PROMOTE: Final = "hook promote"
TableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$")]


class Replica(Section):
    """The other site's copy of the store's database."""

    dsn: Secret = Field(description="address of that database, with its login: a secret, as `store.dsn`")


class Store(Section):
    """The place of the lock: a file that this machine can read, or a row of a database."""

    lock: str | None = Field(default=None, description="the lock file in the directory that the brokers share")
    dsn: Secret | None = Field(
        default=None,
        description="address of the database that the brokers share, with a login that may read: a secret, as in "
        "`postgresql://user:password@host:5432/name` or `mysql://…`",
    )
    table: TableName = Field(default="ACTIVEMQ_LOCK", description="`dsn`: its table of the lock")
    messages: TableName = Field(default="ACTIVEMQ_MSGS", description="`dsn`: its table of the messages")
    lease: Duration = Field(
        default="10s",
        validate_default=True,
        description="`lockAcquireSleepInterval` of activemq.xml: how often a waiting broker tries, and with "
        "`dsn` how long a lease lasts",
    )
    keep_alive: Duration = Field(
        default="5s",
        validate_default=True,
        description="`lockKeepAlivePeriod` of activemq.xml: how often the holder renews the lock",
    )
    replica: Replica | None = Field(
        default=None, description="where each site has its own database and one replicates the other: the replica"
    )

    @model_validator(mode="after")
    def _one_lock(self) -> Self:
        if (self.lock is None) == (self.dsn is None):
            raise ValueError("needs either lock, a file, or dsn, a database")
        if self.replica is not None and self.dsn is None:
            raise ValueError("replica is that of a database: it needs dsn")
        return self


class Process(Section):
    """Commands for a broker's process: a waiting broker has neither ports nor management."""

    commands = ("state", "start", "stop")

    state: Words = Field(
        min_length=1, description="words of the command that ends with 0 where the process runs and with 3 where not"
    )
    start: Words | None = Field(
        default=None, min_length=1, description="of the one that starts it; it does not wait for the lock"
    )
    stop: Words | None = Field(
        default=None, min_length=1, description="of the one that stops it in an orderly way, instead of its console"
    )
    timeout: Duration = Field(default="30s", validate_default=True, description="how long each may take")


class SharedStoreBroker(ClassicBroker):
    """A broker of the two that share a store."""

    jolokia: HttpAddress = Field(description="management address, as in http://host:8161/api/jolokia")
    broker: str = Field(description="the broker's own name (`brokerName` of activemq.xml)")
    lease_holder: str | None = Field(
        default=None,
        description="its name in the lock's row, where activemq.xml sets `leaseHolderId` of the locker; default: the "
        "broker's own name",
    )
    process: Process | None = Field(
        default=None, description="its process; without: whether a waiting broker lives cannot be seen"
    )

    @property
    def holder(self) -> str:
        return self.lease_holder or self.broker


class ClassicSharedStore(Settings):
    """An installation whose sites share one store."""

    topology: Literal["classic-shared-store"]
    store: Store
    sites: dict[SiteName, Site[SharedStoreBroker]]

    @property
    def order(self) -> Sequence[tuple[str, str, str]]:
        """Order the promotion of a replica, which takes no writes before it, and replicates nothing after it."""
        if self.store.replica is None:
            return ()
        return (
            ("fence", PROMOTE, "clients would go on writing to the database that is left"),
            ("verify", PROMOTE, "changes that the replica lacks would be lost with the promotion"),
            (PROMOTE, "activate", "the broker there would find a database that takes no writes"),
        )

    @model_validator(mode="after")
    def _one_pair(self) -> Self:
        """Refuse further brokers: the store's lock is for one broker at a time."""
        if any(len(site.brokers) != 1 for site in self.sites.values()):
            raise ValueError("one store has one lock: each site has one broker")
        if len(self.holders) != len(self.sites):
            raise ValueError(
                "broker, lease_holder: the two need names of their own, or the lock does not say whose it is"
            )
        return self

    @property
    def holders(self) -> frozenset[str]:
        return frozenset(broker.holder for site in self.sites.values() for broker in site.brokers)


class FanoutBroker(SyncedBroker):
    """A broker of a pair; producers write to both."""

    producers: Names = Field(
        min_length=1,
        description="names of the transport connectors that producers use; they are open at both sites, and a fence "
        "leaves them open",
    )
    sync: AgentAccess | None = Field(
        default=None,
        description="how dr-ctl itself reaches this broker to read messages that the other site lacks, and to write "
        "messages that this one lacks",
    )


class ClassicFanout(Settings):
    """An installation whose producers write to both sites."""

    apart: ClassVar = (("clients", "producers"),)

    topology: Literal["classic-fanout"]
    sites: dict[SiteName, Site[FanoutBroker]]
    id_header: str = Field(
        default="UniqueMessageID",
        pattern=r"^[A-Za-z_$][A-Za-z0-9_$]*$",
        description="the property with the producer's id of a message, the same at both sites: each broker gives it "
        "a JMSMessageID of its own",
    )
    ids: IdStore | None = Field(
        default=None,
        description="the store of processed ids that the consumers of both sites share, where dr-ctl can read it",
    )
