"""Creation, start and settings of a Classic broker of a lab."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from dr_ctl.core.errors import UsageError
from dr_ctl_lab.lab import daemons
from dr_ctl_lab.lab.classic.admin import CLIENTS, ClassicAdmin, jolokia
from dr_ctl_lab.lab.classic.policy import OPEN, policy
from dr_ctl_lab.lab.clients.client import FORWARDED, Proto
from dr_ctl_lab.lab.clients.traits import Variation
from dr_ctl_lab.lab.dialect import CLASSIC
from dr_ctl_lab.lab.distribution import CLASSIC as ARCHIVE
from dr_ctl_lab.lab.distribution import Coordinates
from dr_ctl_lab.lab.spec import Kind
from dr_ctl_lab.lab.state import ADMIN, APP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

DISTRIBUTION: Final = Coordinates("org.apache.activemq", ARCHIVE, "5.18.3")
AGENT, BRIDGE = "agent", "bridge"  # users beside clients and admin
PORTS: Final = ("http", "clients", "openwire", "sync")
LOG, LOG_BEFORE, ARGV = "broker.log", "broker.log.1", "argv.json"
# More than any test puts into a queue, so that a browse shows all messages.
BROWSE_PAGE: Final = 100_000
TRIED_MS, KEPT_MS = 1_000, 2_000
# Log lines of a broker that found the lock taken: of a file, and of a lease.
WAITING: Final = ("in slave mode waiting a lock", "failed to acquire lease")
NOWHERE: Final = "auto://127.0.0.1:0"
EVERYWHERE: Final = ("policy", "browse_page", "jolokia", "boots_open")
# Other names have a meaning for Classic (wildcards, lists, options), or are changed in names of beans.
PLAIN_QUEUE: Final = re.compile(r"[A-Za-z0-9._-]+")
LOGGING: Final = """rootLogger.level=INFO
rootLogger.appenderRef.console.ref=Console
rootLogger.appenderRef.console.filter.threshold.type=ThresholdFilter
rootLogger.appenderRef.console.filter.threshold.level=INFO
appender.console.type=Console
appender.console.name=Console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%5p | %m%n
"""
INVOKING: Final = "org.springframework.beans.factory.config.MethodInvoking"
OPENED: Final = ("java.base/java.lang", "java.base/java.util", "java.base/java.net", "java.rmi/sun.rmi.transport")


@dataclass(frozen=True, slots=True)
class TopologyParts:
    """Parts that a topology adds to activemq.xml; `stopped` are network connectors that a start stops."""

    store: str
    composites: str = ""  # inside <virtualDestinations>
    network: str = ""
    beans: str = ""
    connectors: str = ""
    stopped: Sequence[str] = ()
    boots_open: bool = False


def options(value: Options, *, also: Iterable[str], topology: str) -> Options:
    """The options with defaults. UsageError where the topology does not have one. Of every Classic lab: `policy`, a
    text of jolokia-access.xml or "hardened"; `browse_page`; `jolokia`, false to leave it out of the settings;
    `boots_open`, true where the clients' connector is open after a start."""
    if unknown := sorted(set(value) - {*EVERYWHERE, *also}):
        raise UsageError(f"a lab of {topology} has no option {', '.join(unknown)}")
    return {"browse_page": BROWSE_PAGE, "jolokia": True, "boots_open": False, **value}


def create(
    home: Path, instance: Path, spec: BrokerSpec, *, topology_parts: Callable[[Path, BrokerSpec], TopologyParts]
) -> None:
    """Create a broker's directory. UsageError where a bean cannot have a queue's name unchanged."""
    if variations := [name for name in spec.queues if PLAIN_QUEUE.fullmatch(name) is None]:
        raise UsageError(
            f"{variations[0]!r}: a queue of Classic brokers is named with letters, digits, dots, - and _ here"
        )
    conf, web = instance / "conf", _has_web_server(home)
    for name in ("data", "tmp"):
        (instance / name).mkdir(parents=True)
    if web:
        shutil.copytree(home / "conf", conf)
        _write(conf / "jetty-realm.properties", f"{ADMIN}: {spec.site.admin_password}, admin\n")
        jetty = conf / "jetty.xml"
        _write(jetty, without_console(jetty.read_text()))
    else:
        conf.mkdir()
        _write(conf / "log4j2.properties", LOGGING)
    if not web or "policy" in spec.options:
        _write(conf / "jolokia-access.xml", policy(spec.options.get("policy", OPEN)))
    management = '<import resource="jetty.xml"/>' if web else _jolokia(instance, spec.site)
    xml = configured(spec, topology_parts(instance, spec), management)
    _write(conf / "activemq.xml", spec.edit(xml) if spec.edit else xml)
    (instance / ARGV).write_text(json.dumps(_argv(home, instance, spec.site)))


def start(instance: Path) -> daemons.Process:
    """Launch the broker; return without waiting for it. The log of the previous start is kept."""
    log = instance / LOG
    if log.exists():
        log.replace(instance / LOG_BEFORE)
    return daemons.launch(json.loads((instance / ARGV).read_text()), cwd=instance, log=log)


def configured(spec: BrokerSpec, topology_parts: TopologyParts, management: str = "") -> str:
    """The activemq.xml of a broker; `management` is its part for Jolokia."""
    site = spec.site
    users = {ADMIN: (site.admin_password, "admins"), APP: (site.app_password, "apps")}
    users |= {name: (password, f"{name}s") for name, password in site.others.items() if name in {AGENT, BRIDGE}}
    logins = "".join(
        f"\n        <authenticationUser username={quoteattr(name)} password={quoteattr(password)}"
        f" groups={quoteattr(group)}/>"
        for name, (password, group) in users.items()
    )
    queues = "".join(f"\n      <queue physicalName={quoteattr(name)}/>" for name in spec.queues)
    return f"""<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <!-- Without it the marks in jetty.xml stay as they are, and the broker stops again when Jetty fails. -->
  <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>{topology_parts.beans}
  <broker xmlns="http://activemq.apache.org/schema/core" id="broker" brokerName="{site.group}"
          dataDirectory="${{activemq.data}}" useJmx="true" persistent="true">
    <destinations>{queues}
    </destinations>
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="&gt;" advisoryForConsumed="true" sendAdvisoryIfNoConsumers="true"
                   maxBrowsePageSize="{spec.options["browse_page"]}"/>
    </policyEntries></policyMap></destinationPolicy>
    <managementContext><managementContext createConnector="false"/></managementContext>
    <destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>{topology_parts.composites}{_forwarding(spec)}
    </virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>{topology_parts.network}
    <persistenceAdapter>{topology_parts.store}</persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin><users>{logins}
      </users></simpleAuthenticationPlugin>
      <statisticsBrokerPlugin/>
    </plugins>
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      <storeUsage><storeUsage limit="1 gb"/></storeUsage>
      <tempUsage><tempUsage limit="256 mb"/></tempUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{site.ports["openwire"]}"/>
      <transportConnector name="sync" uri="stomp://127.0.0.1:{site.ports["sync"]}"/>{topology_parts.connectors}
      <transportConnector name="{CLIENTS}" uri="{address(site) if topology_parts.boots_open else NOWHERE}"/>
    </transportConnectors>
  </broker>{_after_the_start(spec.site, topology_parts)}
  {management}
</beans>
"""


def kahadb(spec: BrokerSpec) -> str:
    """The store in files; those of the journal are small, because they are allocated in full."""
    if spec.nodes and spec.store is not None:
        return shared_kahadb(spec.store)
    return '<kahaDB directory="${activemq.data}/kahadb" journalMaxFileLength="4mb"/>'


def shared_kahadb(directory: Path) -> str:
    return (
        f'<kahaDB directory={quoteattr(str(directory))} journalMaxFileLength="4mb" lockKeepAlivePeriod="{KEPT_MS}">'
        f'<locker><shared-file-locker lockAcquireSleepInterval="{TRIED_MS}"/></locker></kahaDB>'
    )


def is_waiting(instance: Path) -> bool:
    """Say whether a broker has found the lock taken since its start."""
    said = (instance / LOG).read_text(errors="replace")
    return any(word in said for word in WAITING)


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    return {
        "name": site.pair,
        "jolokia": jolokia(site),
        "stomp": str(site.stomp),
        "username": ADMIN,
        "password": {"file": secret},
        "clients": [CLIENTS],
    }


def without_console(xml: str) -> str:
    """Remove the web console from jetty.xml: its start takes longer than the broker's."""
    console = r'<bean class="[a-zA-Z.]+\.WebAppContext">\s*<property name="contextPath" value="/admin".*?</bean>'
    return re.sub(console, "", xml, count=1, flags=re.DOTALL)


def without_jolokia(document: dict[str, Any], value: Options) -> dict[str, Any]:
    """Remove `jolokia` from the settings where the option is false."""
    if not value.get("jolokia", True):
        for site in document["sites"].values():
            for broker in site["brokers"]:
                del broker["jolokia"]
    return document


def address(site: SiteState) -> str:
    """The address of the clients' connector, for all protocols."""
    return f"auto://127.0.0.1:{site.ports['clients']}"


def _forwarding(spec: BrokerSpec) -> str:
    """Composite topics that forward from MQTT into the queues."""
    return "".join(
        f"""
      <compositeTopic name="{FORWARDED}{name}"><forwardTo><queue physicalName="{name}"/></forwardTo></compositeTopic>"""
        for name in spec.forwards
    )


def _after_the_start(site: SiteState, topology_parts: TopologyParts) -> str:
    """Calls by Spring once the broker runs, before its management answers.

    Classic starts every connector. The clients' one therefore starts at another port, is stopped, and gets its address:
    a later start opens that. A network connector ships for a moment before it is stopped.
    """
    rows = [_invoked("getNetworkConnectorByName", name, "stop") for name in topology_parts.stopped]
    if not topology_parts.boots_open:
        listener = "getTransportConnectorByName", CLIENTS
        rows += [_invoked(*listener, "stop"), _invoked(*listener, "setUri", address(site))]
    return "".join(rows)


def _invoked(getter: str, name: str, method: str, *arguments: str) -> str:
    """A bean that calls a method of a connector."""
    return f"""
  <bean class="{INVOKING}Bean">
    <property name="targetObject">
      <bean class="{INVOKING}FactoryBean">
        <property name="targetObject" ref="broker"/>
        <property name="targetMethod" value="{getter}"/>
        <property name="arguments">{_list(name)}</property>
      </bean>
    </property>
    <property name="targetMethod" value="{method}"/>
    <property name="arguments">{_list(*arguments)}</property>
  </bean>"""


def _list(*values: str) -> str:
    return f"<list>{''.join(f'<value>{value}</value>' for value in values)}</list>"


def _has_web_server(home: Path) -> bool:
    """Without a web server, Jolokia is a bean that starts after the broker and ends with it."""
    return (home / "webapps").is_dir()


def _jolokia(instance: Path, site: SiteState) -> str:
    document = {
        "host": "127.0.0.1",
        "port": site.ports["http"],
        "agentContext": "/api/jolokia",
        "policyLocation": f"file:{instance}/conf/jolokia-access.xml",
        "user": ADMIN,
        "password": site.admin_password,
        "discoveryEnabled": "false",
        "executor": "fixed",
        "threadNr": 5,
    }
    entries = "".join(f'<entry key="{key}" value="{value}"/>' for key, value in document.items())
    server = "org.jolokia.jvmagent.JolokiaServer"
    return f"""<bean id="jolokia" class="{server}" init-method="start"><constructor-arg>
    <bean class="{server}Config"><constructor-arg><map>{entries}</map></constructor-arg></bean>
  </constructor-arg></bean>
  <bean class="{INVOKING}Bean">
    <property name="targetObject" ref="broker"/>
    <property name="targetMethod" value="addShutdownHook"/>
    <property name="arguments"><list><bean class="org.springframework.scheduling.support.MethodInvokingRunnable">
      <property name="targetObject" ref="jolokia"/>
      <property name="targetMethod" value="stop"/>
    </bean></list></property>
  </bean>"""


def _argv(home: Path, instance: Path, site: SiteState) -> list[str]:
    conf = instance / "conf"
    document = {
        "java.awt.headless": "true",
        "jetty.host": "127.0.0.1",
        "jetty.port": site.ports["http"],
        "jolokia.conf": f"file:{conf}/jolokia-access.xml",
        "java.security.auth.login.config": f"{conf}/login.config",
        "java.io.tmpdir": instance / "tmp",
        "activemq.classpath": f"{conf}:{home}/lib/:",
        "activemq.home": home,
        "activemq.base": instance,
        "activemq.conf": conf,
        "activemq.data": instance / "data",
    }
    opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    properties = [f"-D{name}={value}" for name, value in document.items()]
    words = ["java", "-Xms64m", "-Xmx384m", *daemons.LIGHT, *opened, *properties]
    if _has_web_server(home):
        return [*words, "-jar", str(home / "bin" / "activemq.jar"), "start"]
    words += ["-cp", f"{conf}:{home}/lib/*:{instance}/lib/*", "org.apache.activemq.console.command.ShellCommand"]
    return [*words, "start", f"xbean:file:{conf}/activemq.xml"]


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)  # it has passwords


# The common part of all kinds of Classic.
classic = partial(
    Kind,
    distribution=DISTRIBUTION,
    ports=PORTS,
    start=start,
    admin=ClassicAdmin,
    settings=settings,
    logs=(LOG_BEFORE, LOG),
    made_at_once=lambda _: True,
    users=(AGENT, BRIDGE),
    dialect=CLASSIC,
    protocols=(Proto.STOMP, Proto.AMQP, Proto.OPENWIRE, Proto.MQTT),
    # Delayed messages are in the scheduler's store, which is not replicated.
    variations=frozenset(Variation) - {Variation.DELAYED},
    forwards=lambda name: PLAIN_QUEUE.fullmatch(name) is not None,
)
