"""Labs whose brokers share one store: the holder of its lock serves, the other waits for it with no port open.

The store is a directory with a lock file. Option `database` makes it a PostgreSQL with a lease; `lease_ms` is how long
a lease lasts, `keep_alive_ms` how often its holder renews it; with `lease_holders` the lock has other names than the
brokers' own. The rest is the family's.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.core.errors import BrokerError, Unreachable, UsageError
from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab.classic import create
from dr_ctl_lab.lab.classic.admin import ClassicAdmin
from dr_ctl_lab.lab.classic.database import USER, Database, driver
from dr_ctl_lab.lab.state import PAIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dr_ctl_lab.lab.daemons import Process
    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

STORE, SECRET = "store", "secrets/store"
PID: Final = "pid"
LEASE_MS, KEEP_ALIVE_MS = 10_000, 5_000
TELLING: Final = """
logger.lease.name=org.apache.activemq.store.jdbc.LeaseDatabaseLocker
logger.lease.level=DEBUG
"""


def options(value: Options) -> Options:
    """As `create.options`; the clients' connector opens with the broker, or a takeover would let nobody in."""
    known = create.options(
        value, also=("database", "lease_ms", "keep_alive_ms", "lease_holders"), topology="classic-shared-store"
    )
    usual = {"database": False, "lease_ms": LEASE_MS, "keep_alive_ms": KEEP_ALIVE_MS, "lease_holders": False}
    return {**usual, **known, "boots_open": True}


def make_broker(home: Path, instance: Path, spec: BrokerSpec) -> None:
    if spec.site.pair != PAIR:
        raise UsageError("brokers that share one store: such a lab has one pair")
    create.create(home, instance, spec, joined=joined)
    if spec.options["database"]:
        (instance / "lib").mkdir()
        shutil.copy(driver(), instance / "lib")
        _tell_of_the_lease(instance / "conf" / "log4j2.properties")


def joined(instance: Path, spec: BrokerSpec) -> create.Joined:
    chosen = spec.options
    if chosen["database"]:
        return create.Joined(store=_leased(spec), beans=_source(database(spec)), boots_open=True)
    return create.Joined(store=create.shared_kahadb(instance.parent / STORE), boots_open=True)


def database(spec: BrokerSpec) -> Database:
    """The one that both brokers of a pair use."""
    first = min(spec.site, spec.peer, key=lambda site: site.name)
    return Database(first.ports["database"], first.others["database"])


def beside(directory: Path, specs: Sequence[BrokerSpec]) -> Process | None:
    """Start the database, if there is one, and write down how it is reached."""
    first = specs[0]
    if not first.options["database"]:
        return None
    (directory / SECRET).parent.mkdir(mode=0o700, exist_ok=True)
    write_text(directory / SECRET, database(first).dsn + "\n")
    return database(first).up(directory / STORE)


class SharedAdmin(ClassicAdmin):
    """Management of a broker that answers while it holds the lock."""

    def create_queue(self, name: str) -> None:
        """Make a queue, if this is the broker that has the store."""
        try:
            super().create_queue(name)
        except BrokerError as error:
            if not _waits(error):
                raise

    def depths(self) -> dict[str, int]:
        """Depths as of any broker; a broker that waits for the store has no queues."""
        try:
            return super().depths()
        except BrokerError as error:
            if _waits(error):
                return {}
            raise


def _waits(error: BrokerError) -> bool:
    return isinstance(error.__cause__, Unreachable) and error.__cause__.refused


def complete(document: dict[str, Any], value: Options) -> dict[str, Any]:
    """Say where the lock is."""
    leases = bool(value["database"])
    every = (value["lease_ms"], value["keep_alive_ms"]) if leases else (create.TRIED_MS, create.KEPT_MS)
    where = {"dsn": {"file": SECRET}} if leases else {"lock": f"{STORE}/lock"}
    if value["lease_holders"]:
        for name, site in document["sites"].items():
            site["brokers"][0]["lease_holder"] = lease_holder(name)
    document["store"] = {**where, "lease": f"{every[0]}ms", "keep_alive": f"{every[1]}ms"}
    return create.without_jolokia(document, value)


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    """A broker that waits tells its name to nobody, and the lock's row has it; the process is asked for."""
    asked = f'case "$(cut -d" " -f3 /proc/$(cat {site.broker}/{PID})/stat 2>&1)" in R|S|D|T) ;; *) exit 3;; esac'
    words = {"state": ["sh", "-c", asked], "start": [sys.executable, "-m", "dr_ctl", "lab", "start", site.name]}
    words["start"] += ["--dir", "."]
    return {**create.settings(site, secret), "broker": site.broker, "process": {**words, "timeout": "60s"}}


def start(instance: Path) -> Process:
    """Start as any broker; the pid is kept for whoever asks by the settings file, in a moment and without Python."""
    process = create.start(instance)
    write_text(instance / PID, f"{process.pid}\n")
    return process


def _tell_of_the_lease(log4j: Path) -> None:
    """A broker says only when debugging that another one has the lease."""
    replace = log4j.read_text().replace("console.filter.threshold.level=INFO", "console.filter.threshold.level=DEBUG")
    log4j.write_text(replace + TELLING)


def _leased(spec: BrokerSpec) -> str:
    chosen = spec.options
    named = f' leaseHolderId="{lease_holder(spec.site.name)}"' if chosen["lease_holders"] else ""
    return (
        f'<jdbcPersistenceAdapter dataSource="#source" lockKeepAlivePeriod="{chosen["keep_alive_ms"]}"><locker>'
        f'<lease-database-locker lockAcquireSleepInterval="{chosen["lease_ms"]}"{named}/></locker>'
        "</jdbcPersistenceAdapter>"
    )


def lease_holder(site: str) -> str:
    """The name of its broker in the lock, where that is not the broker's own."""
    return f"{site}-lease"


def _source(where: Database) -> str:
    document = {
        "driverClassName": "org.postgresql.Driver",
        "url": where.jdbc,
        "username": USER,
        "password": where.password,
        "maxTotal": "20",
        "poolPreparedStatements": "true",
    }
    properties = "".join(f'\n    <property name="{name}" value="{value}"/>' for name, value in document.items())
    return f"""
  <bean id="source" class="org.apache.commons.dbcp2.BasicDataSource" destroy-method="close">{properties}
  </bean>"""


KIND: Final = create.classic(
    joined="share one store",
    ports=(*create.PORTS, "database"),
    link_target=None,
    options=options,
    create=make_broker,
    admin=SharedAdmin,
    settings=settings,
    start=start,
    complete=complete,
    links_at_boot=lambda _: False,
    beside=beside,
    waits=create.waits,
    users=("database",),
)
