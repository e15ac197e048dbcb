"""Two real Classic brokers that copy to each other over network connectors, on free ports, in one directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import Account, Changer, Read, Reader, Wire
from tests.lab.waiting import eventually

VERSION: Final = "5.18.3"
SITES: Final = ("london", "paris")
QUEUE: Final = "orders.in"
OPENS: Final = (
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.net",
    "java.rmi/sun.rmi.transport",
    "java.base/java.security",
)
CONFIGURATION: Final = Template("""\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="$site" dataDirectory="$${activemq.data}">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="&gt;" advisoryForConsumed="true" maxBrowsePageSize="$page" queuePrefetch="1000"/>
    </policyEntries></policyMap></destinationPolicy>
    <managementContext><managementContext createConnector="false"/></managementContext>
    <destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>
      <compositeQueue name="$queue" forwardOnly="false"><forwardTo>
        <filteredDestination selector="JMSActiveMQBrokerPath = 'null'" queue="$queue.to-$peer"/>
      </forwardTo></compositeQueue>
      <compositeQueue name="$queue.to-$site" forwardOnly="true"><forwardTo>
        <queue physicalName="$queue"/>
      </forwardTo></compositeQueue>
    </virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>
    <networkConnectors><networkConnector name="to-$peer" uri="static:(tcp://127.0.0.1:$there)" networkTTL="1">
      <dynamicallyIncludedDestinations><queue physicalName="no.such.queue"/></dynamicallyIncludedDestinations>
      <staticallyIncludedDestinations><queue physicalName="$queue.to-$peer"/></staticallyIncludedDestinations>
    </networkConnector></networkConnectors>
    <persistenceAdapter><kahaDB directory="$${activemq.data}/kahadb"/></persistenceAdapter>
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      <storeUsage><storeUsage limit="2 gb"/></storeUsage><tempUsage><tempUsage limit="1 gb"/></tempUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:$openwire"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:$stomp"/>
      <transportConnector name="sync" uri="stomp://127.0.0.1:$sync"/>
    </transportConnectors>
  </broker>
  <import resource="jetty.xml"/>
</beans>
""")


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@dataclass
class ClassicBroker:
    """One broker process."""

    site: str
    folder: Path
    home: Path
    ports: dict[str, int]
    process: subprocess.Popen[bytes] | None = None

    @property
    def jolokia(self) -> str:
        return f"http://127.0.0.1:{self.ports['http']}/api/jolokia/"

    @property
    def server(self) -> str:
        return f"org.apache.activemq:type=Broker,brokerName={self.site}"

    def queue(self, name: str = QUEUE) -> str:
        return f"{self.server},destinationType=Queue,destinationName={name}"

    def wire(self) -> Wire:
        return Wire(Account(self.jolokia, "admin", "admin", "http://localhost"))

    def figures(self, *attributes: str, queue: str = QUEUE) -> list[int]:
        told = Reader(self.wire()).look([Read(self.queue(queue), attributes)])[0].value()
        return [int(told[each]) for each in attributes]

    def change(self, change: object) -> object:
        return Changer(self.wire()).change([change])[0].value()  # type: ignore[list-item]

    def start(self) -> None:
        folder, home = self.folder, self.home
        words = ["java", "-Xms64m", "-Xmx512m", "-Djava.awt.headless=true", "-Djetty.host=127.0.0.1"]
        words += [f"-Djetty.port={self.ports['http']}", *(f"--add-opens={each}=ALL-UNNAMED" for each in OPENS)]
        words += [f"-Djava.security.auth.login.config={folder}/conf/login.config", f"-Djava.io.tmpdir={folder}/tmp"]
        words += [f"-Djolokia.conf=file:{folder}/conf/jolokia-access.xml", f"-Dactivemq.home={home}"]
        words += [f"-Dactivemq.base={folder}", f"-Dactivemq.conf={folder}/conf", f"-Dactivemq.data={folder}/data"]
        words += [f"-Dactivemq.classpath={folder}/conf:{home}/lib/:", "-jar", f"{home}/bin/activemq.jar", "start"]
        with (folder / "out.log").open("ab") as log:
            self.process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        eventually(self.answers, within_s=60)

    def answers(self) -> bool:
        asked = [Read(self.server, ("BrokerName",))]
        try:
            return Reader(self.wire()).look(asked)[0].error is None
        except BrokerError:
            return False

    def kill(self, signum: int = signal.SIGKILL) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signum)
            self.process.wait(60)
            self.process = None


@dataclass
class ClassicPair:
    """Both of them."""

    brokers: dict[str, ClassicBroker] = field(default_factory=dict)

    def __getitem__(self, site: str) -> ClassicBroker:
        return self.brokers[site]

    def close(self) -> None:
        for each in self.brokers.values():
            each.kill()


def distribution(into: Path) -> Path:
    """The home of the unpacked distribution; what Maven has is not fetched again."""
    home = into / f"apache-activemq-{VERSION}"
    if not home.exists():
        what = f"org.apache.activemq:apache-activemq:{VERSION}:tar.gz:bin"
        words = ["mvn", "-q", "dependency:copy", f"-Dartifact={what}", f"-DoutputDirectory={into}"]
        subprocess.run(words, check=True, timeout=300)
        with tarfile.open(into / f"apache-activemq-{VERSION}-bin.tar.gz") as packed:
            packed.extractall(into, filter="data")
    return home


def classic_pair(folder: Path, *, page: int = 400_000) -> ClassicPair:
    """Make both and start them; `page` is how far a browse of theirs goes."""
    home = distribution(folder)
    pair = ClassicPair()
    for site in SITES:
        ports = {name: free_port() for name in ("openwire", "stomp", "sync", "http")}
        pair.brokers[site] = ClassicBroker(site, folder / site, home, ports)
    for site, peer in (SITES, SITES[::-1]):
        mine = pair[site]
        shutil.copytree(home / "conf", mine.folder / "conf")
        (mine.folder / "tmp").mkdir()
        names = {"site": site, "peer": peer, "queue": QUEUE, "page": str(page)}
        ports = {name: str(port) for name, port in mine.ports.items()} | {"there": str(pair[peer].ports["openwire"])}
        text = CONFIGURATION.substitute(names | ports)
        (mine.folder / "conf" / "activemq.xml").write_text(text)
    for each in pair.brokers.values():
        each.start()
    return pair


__all__ = ["QUEUE", "ClassicBroker", "ClassicPair", "classic_pair"]
