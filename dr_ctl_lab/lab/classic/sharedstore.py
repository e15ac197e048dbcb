"""Labs of classic-shared-store: the holder of the store's lock serves, the other waits without an open port.

The store is a directory with a lock file; with the option `database` a PostgreSQL with a lease of `lease_ms`, renewed
every `keep_alive_ms`. With `lease_holders` the names in the lock are not the brokers'. Other options: of the family.
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
LEASE_LOGGING: Final = """
logger.lease.name=org.apache.activemq.store.jdbc.LeaseDatabaseLocker
logger.lease.level=DEBUG
"""


def options(value: Options) -> Options:
    """As `create.options`; the clients' connector opens with the broker, so that a takeover serves."""
    known = create.options(
        value, also=("database", "lease_ms", "keep_alive_ms", "lease_holders"), topology="classic-shared-store"
    )
    usual = {"database": False, "lease_ms": LEASE_MS, "keep_alive_ms": KEEP_ALIVE_MS, "lease_holders": False}
    return {**usual, **known, "boots_open": True}


def make_broker(home: Path, instance: Path, spec: BrokerSpec) -> None:
    if spec.site.pair != PAIR:
        raise UsageError("brokers that share one store: such a lab has one pair")
    create.create(home, instance, spec, topology_parts=topology_parts)
    if spec.options["database"]:
        (instance / "lib").mkdir()
        shutil.copy(driver(), instance / "lib")
        _log_lease(instance / "conf" / "log4j2.properties")


def topology_parts(instance: Path, spec: BrokerSpec) -> create.TopologyParts:
    options = spec.options
    if options["database"]:
        return create.TopologyParts(store=_leased(spec), beans=_source(database(spec)), boots_open=True)
    return create.TopologyParts(store=create.shared_kahadb(instance.parent / STORE), boots_open=True)


def database(spec: BrokerSpec) -> Database:
    """The database of both brokers of a pair."""
    first = min(spec.site, spec.peer, key=lambda site: site.name)
    return Database(first.ports["database"], first.others["database"])


def beside(directory: Path, specs: Sequence[BrokerSpec]) -> Process | None:
    """Start the database, if there is one, and store its address."""
    first = specs[0]
    if not first.options["database"]:
        return None
    (directory / SECRET).parent.mkdir(mode=0o700, exist_ok=True)
    write_text(directory / SECRET, database(first).dsn + "\n")
    return database(first).up(directory / STORE)


class SharedAdmin(ClassicAdmin):
    """Management of a broker, which answers only while it holds the lock."""

    def create_queue(self, name: str) -> None:
        """Create a queue, if this broker has the store."""
        try:
            super().create_queue(name)
        except BrokerError as error:
            if not _is_waiting(error):
                raise

    def depths(self) -> dict[str, int]:
        """Depths; a broker that waits for the store has none."""
        try:
            return super().depths()
        except BrokerError as error:
            if _is_waiting(error):
                return {}
            raise


def _is_waiting(error: BrokerError) -> bool:
    return isinstance(error.__cause__, Unreachable) and error.__cause__.refused


def complete(document: dict[str, Any], value: Options) -> dict[str, Any]:
    """Add the store and its lock."""
    leases = bool(value["database"])
    periods = (value["lease_ms"], value["keep_alive_ms"]) if leases else (create.TRIED_MS, create.KEPT_MS)
    location = {"dsn": {"file": SECRET}} if leases else {"lock": f"{STORE}/lock"}
    if value["lease_holders"]:
        for name, site in document["sites"].items():
            site["brokers"][0]["lease_holder"] = lease_holder(name)
    document["store"] = {**location, "lease": f"{periods[0]}ms", "keep_alive": f"{periods[1]}ms"}
    return create.without_jolokia(document, value)


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    """The settings, with the broker's name and commands for its process: a waiting broker has no management."""
    script = f'case "$(cut -d" " -f3 /proc/$(cat {site.broker}/{PID})/stat 2>&1)" in R|S|D|T) ;; *) exit 3;; esac'
    words = {"state": ["sh", "-c", script], "start": [sys.executable, "-m", "dr_ctl", "lab", "start", site.name]}
    words["start"] += ["--dir", "."]
    return {**create.settings(site, secret), "broker": site.broker, "process": {**words, "timeout": "60s"}}


def start(instance: Path) -> Process:
    """Start a broker, and store its pid for the `state` command of the settings."""
    process = create.start(instance)
    write_text(instance / PID, f"{process.pid}\n")
    return process


def _log_lease(log4j: Path) -> None:
    """Log at DEBUG: only then a broker says that another one has the lease."""
    text = log4j.read_text().replace("console.filter.threshold.level=INFO", "console.filter.threshold.level=DEBUG")
    log4j.write_text(text + LEASE_LOGGING)


def _leased(spec: BrokerSpec) -> str:
    options = spec.options
    named = f' leaseHolderId="{lease_holder(spec.site.name)}"' if options["lease_holders"] else ""
    return (
        f'<jdbcPersistenceAdapter dataSource="#source" lockKeepAlivePeriod="{options["keep_alive_ms"]}"><locker>'
        f'<lease-database-locker lockAcquireSleepInterval="{options["lease_ms"]}"{named}/></locker>'
        "</jdbcPersistenceAdapter>"
    )


def lease_holder(site: str) -> str:
    """The name of a site's broker in the lock, with `lease_holders`."""
    return f"{site}-lease"


def _source(location: Database) -> str:
    document = {
        "driverClassName": "org.postgresql.Driver",
        "url": location.jdbc,
        "username": USER,
        "password": location.password,
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
    is_waiting=create.is_waiting,
    users=("database",),
)
