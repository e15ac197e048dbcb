"""Settings of two sites of Classic brokers that share one store: the broker with the store's lock serves, the other
waits."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.parts import HttpAddress, Names, Part, Seconds, Secret
from dr_ctl.settings.topologies.classic import ClassicBroker

PROMOTE: Final = "hook promote"
TableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$")]


class Replica(Part):
    """The other site's copy of the store's database."""

    dsn: Secret = Field(description="address of that database, with its login: a secret, as `store.dsn`")


class Store(Part):
    """Where the lock is: a file that this machine sees, or a row of a database."""

    lock: str | None = Field(default=None, description="the lock file in the directory that the brokers share")
    dsn: Secret | None = Field(
        default=None,
        description="address of the database that the brokers share, with a login that may read: a secret, as in "
        "`postgresql://user:password@host:5432/name` or `mysql://…`",
    )
    table: TableName = Field(default="ACTIVEMQ_LOCK", description="`dsn`: its table of the lock")
    messages: TableName = Field(default="ACTIVEMQ_MSGS", description="`dsn`: its table of the messages")
    lease: Seconds = Field(
        default="10s",
        validate_default=True,
        description="what activemq.xml says as `lockAcquireSleepInterval`: how often a waiting broker tries, and with "
        "`dsn` how long a lease lasts",
    )
    keep_alive: Seconds = Field(
        default="5s",
        validate_default=True,
        description="what it says as `lockKeepAlivePeriod`: how often the holder makes sure of the lock",
    )
    replica: Replica | None = Field(
        default=None,
        description="where each site has a database of its own and one follows the other: the one that follows",
    )

    @model_validator(mode="after")
    def _one_lock(self) -> Self:
        if (self.lock is None) == (self.dsn is None):
            raise ValueError("needs either lock, a file, or dsn, a database")
        if self.replica is not None and self.dsn is None:
            raise ValueError("replica is that of a database: it needs dsn")
        return self


class Process(Part):
    """How a broker's process is looked at, started and stopped: while it waits it has neither ports nor management."""

    commands = ("state", "start", "stop")

    state: Names = Field(
        min_length=1, description="words of the command that ends with 0 where the process runs and with 3 where not"
    )
    start: Names | None = Field(
        default=None, min_length=1, description="of the one that starts it; it does not wait for the lock"
    )
    stop: Names | None = Field(
        default=None, min_length=1, description="of the one that stops it in an orderly way, instead of its console"
    )
    timeout: Seconds = Field(default="30s", validate_default=True, description="how long each may take")


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
        """Its name in the lock's row."""
        return self.lease_holder or self.broker


class ClassicSharedStore(Settings):
    """An installation whose sites share one store."""

    topology: Literal["classic-shared-store"]
    store: Store
    sites: dict[SiteName, Site[SharedStoreBroker]]

    @property
    def order(self) -> Sequence[tuple[str, str, str]]:
        """A replica takes no writes until it is promoted, and follows nothing any more from then on."""
        if self.store.replica is None:
            return ()
        return (
            ("fence", PROMOTE, "clients would go on writing to the database that is left"),
            ("verify", PROMOTE, "what the replica has not got would be lost with the promotion"),
            (PROMOTE, "activate", "the broker there would find a database that takes no writes"),
        )

    @model_validator(mode="after")
    def _one_pair(self) -> Self:
        """The store's lock is for one broker at a time."""
        if any(len(site.brokers) != 1 for site in self.sites.values()):
            raise ValueError("one store has one lock: each site has one broker")
        if len(self.holders) != len(self.sites):
            raise ValueError(
                "broker, lease_holder: the two need names of their own, or the lock does not say whose it is"
            )
        return self

    @property
    def holders(self) -> frozenset[str]:
        """The names that the lock's row can have."""
        return frozenset(broker.holder for site in self.sites.values() for broker in site.brokers)


SETTINGS = ClassicSharedStore
