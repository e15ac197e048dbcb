"""Labs of artemis-continuity. Maven has no jar of the plugin: the caller names it. The plugin runs in Artemis
2.11.0."""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.machine import PartMissing
from dr_ctl_lab.lab.artemis.admin import Admin
from dr_ctl_lab.lab.artemis.create import PROTOCOLS, artemis, create, disk, forwarding, only, plain, queues
from dr_ctl_lab.lab.artemis.group import GROUP
from dr_ctl_lab.lab.clients.traits import Variation
from dr_ctl_lab.lab.distribution import Coordinates
from dr_ctl_lab.lab.state import ADMIN

if TYPE_CHECKING:
    from dr_ctl_lab.lab.spec import BrokerSpec, Options

ARTEMIS: Final = Coordinates("org.apache.activemq", "apache-artemis", "2.11.0")
JAR: Final = "DR_CTL_CONTINUITY_JAR"
STAGING_MS: Final = 500
ACTIVATION_MS: Final = 30_000
OPENS_WITHIN_S: Final = 40.0
# JAXB of this version injects classes by reflection; later versions of Java must be told to allow it.
OPENED: Final = " ".join(
    f"--add-opens java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "sun.nio.ch")
)


def find_jar(value: Path | None) -> Path:
    """The plugin's jar: `value`, or that of the environment. PartMissing where there is none."""
    named = str(value) if value is not None else os.environ.get(JAR, "")
    remedy = f"Build it from its public source (docs/artemis-continuity.md), then --plugin JAR or {JAR}=JAR."
    if not named:
        raise PartMissing("this topology needs the jar of the continuity plugin, and none was named", remedy=remedy)
    path = Path(named).resolve()
    if not path.is_file():
        raise PartMissing(f"there is no plugin at {path}", remedy=remedy)
    return path


def options(value: Options) -> Options:
    """`plugin` is the jar. The lab does not wait for bridges of a site whose `link_auto_start` is false."""
    known = only(value, ("plugin", "link_auto_start"), "artemis-continuity")
    return {**known, "plugin": find_jar(known.get("plugin"))}


def create_with_plugin(home: Path, instance: Path, spec: BrokerSpec) -> None:
    create(home, instance, spec, memory=None, profile=profile, configured=configured)
    (instance / "lib").mkdir(exist_ok=True)
    shutil.copy(spec.options["plugin"], instance / "lib")


def profile(text: str) -> str:
    """The start-up options of this version, changed for later versions of Java."""
    text = re.sub(r"-XX:\+(PrintClassHistogram|AggressiveOpts|UseFastAccessorMethods|UseG1GC|UseParallelGC)", "", text)
    text = re.sub(r"-Xmx\d+[MG]", "-Xmx512M", text)
    return f'{text}\nJAVA_ARGS="$JAVA_ARGS {OPENED}"\n'


def configured(xml: str, spec: BrokerSpec) -> str:
    """Change the stock broker.xml to that of one site with the plugin. Clients and the peer's bridges have separate
    acceptors: the plugin stops only that of the clients."""
    site, peer = spec.site, spec.peer
    uris = {f"peer{number or ''}": uri for number, uri in enumerate(spec.link_uris)}
    connectors = "".join(f'\n         <connector name="{name}">{uri}</connector>' for name, uri in uris.items())
    acceptors = f"""<acceptors>
         <acceptor name="clients">tcp://127.0.0.1:{site.ports["clients"]}?protocols={PROTOCOLS}</acceptor>
         <acceptor name="mirror">tcp://127.0.0.1:{site.ports["mirror"]}?protocols=CORE,AMQP</acceptor>
         <acceptor name="continuity-internal">vm://1</acceptor>
      </acceptors>

      <connectors>
         <connector name="local">vm://1</connector>{connectors}
      </connectors>{forwarding(spec)}"""
    document = {
        "site-id": site.name,
        "local-username": ADMIN,
        "local-password": site.admin_password,
        "remote-username": ADMIN,
        "remote-password": peer.admin_password,
        "serving-acceptors": "clients",
        "local-connector-ref": "local",
        "remote-connector-refs": ",".join(uris),
        # The operator decides which site serves: none activates itself when the other comes back.
        "active-on-start": "false",
        "inflow-staging-delay-ms": STAGING_MS,
        "bridge-interval-ms": 500,
        "bridge-interval-multiplier": 1.0,
        "outflow-exhausted-poll-duration-ms": 100,
        "inflow-acks-consumed-poll-duration-ms": 100,
        "activation-timeout-ms": ACTIVATION_MS,
        # With `true` the plugin does not start where an outflow is ANYCAST.
        "reorg-management-hierarchy": "false",
    }
    properties = "".join(
        f"\n            <property key={quoteattr(k)} value={quoteattr(str(v))}/>" for k, v in document.items()
    )
    plugin = f"""<broker-plugins>
         <broker-plugin class-name="org.apache.activemq.continuity.plugins.ContinuityPlugin">{properties}
         </broker-plugin>
      </broker-plugins>
   </core>"""
    xml = re.sub(r"<acceptors>.*?</acceptors>", lambda _: acceptors, xml, count=1, flags=re.DOTALL)
    xml = re.sub(r'(type="(?!delete)[A-Za-z]+" roles=)"amq"', r'\1"amq,apps"', xml)
    xml = re.sub(r"<addresses>", lambda _: f"<addresses>{outflows(spec)}{queues(spec)}", xml, count=1)
    xml = re.sub(r"</core>", lambda _: plugin, xml, count=1)
    xml = re.sub(
        r"<persistence-enabled>", "<persist-id-cache>true</persist-id-cache>\n      <persistence-enabled>", xml
    )
    return disk(xml)


def outflows(spec: BrokerSpec) -> str:
    """The outflows of messages. Those that the plugin creates are MULTICAST, and lose AMQP messages that are marked for
    a queue, as clients of JMS over AMQP mark theirs."""
    names = [f"{name}.out.mirror" for name in ("DLQ", "ExpiryQueue", *spec.queues) if plain(name)]
    return "".join(
        f"\n         <address name={quoteattr(name)}><anycast><queue name={quoteattr(name)}/></anycast></address>"
        for name in names
    )


class ContinuityAdmin(Admin):
    """Management of one broker: the plugin opens and closes the clients' acceptor."""

    @property
    def _service(self) -> str:
        return f'{self._broker},component=continuity,name="continuity.service"'

    def active(self) -> bool:
        """Say whether the plugin's bean exists: it is created last."""
        return bool(self._call({"type": "search", "mbean": self._service}))

    def link_attached(self, peer: str) -> bool:
        """Say whether every outflow has a consumer: a connected bridge is one."""
        del peer
        queues = self._queues("ConsumerCount")
        shipped = (".out.mirror", ".out.acks", ".cmd.out")
        return all(row["ConsumerCount"] for row in queues.values() if row["Name"].endswith(shipped))

    def clients_open(self, acceptor: str = "clients") -> bool:
        read = self._read(self._service, "Delivering")
        return read is True and super().clients_open(acceptor)

    def open_clients(self, acceptor: str = "clients") -> None:
        """Activate the site, as a person at its console would; return when it delivers."""
        operation = {"type": "exec", "mbean": self._service, "operation": "activateSite(java.lang.Long)"}
        self._call({**operation, "arguments": [ACTIVATION_MS]})
        until = time.monotonic() + OPENS_WITHIN_S
        while not self.clients_open(acceptor):
            if time.monotonic() > until:
                raise BrokerError(f"{self._site.name}: activated, and does not deliver")
            time.sleep(0.05)

    def close_clients(self, acceptor: str = "clients") -> None:
        del acceptor
        self._call({"type": "exec", "mbean": self._service, "operation": "deactivateSite()"})

    def keep_out(self) -> None:
        """Do nothing: the plugin keeps clients out after every start."""

    def create_queue(self, name: str) -> None:
        kinds = "java.lang.String,java.lang.String,java.lang.String,java.lang.String,boolean,int,boolean,boolean"
        try:
            self._call(
                {
                    "type": "exec",
                    "mbean": self._broker,
                    "operation": f"createQueue({kinds})",
                    "arguments": [name, "ANYCAST", name, None, True, -1, False, True],
                }
            )
        except BrokerError as error:
            if "already exists" not in str(error):
                raise

    def depths(self) -> dict[str, int]:
        return {str(row["Name"]): int(row["MessageCount"]) for row in self._queues("MessageCount").values()}

    def _queues(self, attribute: str) -> dict[str, Any]:
        """Read all queues; beans of the plugin's queues match only an open pattern."""
        request = {"type": "read", "mbean": f"{self._broker},queue=*,*", "attribute": ["Name", attribute]}
        document: dict[str, Any] = self._call(request)
        return document


KIND: Final = artemis(
    joined="the continuity plugin joins",
    distribution=ARTEMIS,
    ports=("http", "clients", "mirror"),
    options=options,
    create=create_with_plugin,
    admin=ContinuityAdmin,
    # The plugin gives no id to large messages of CORE, and to no large copy of AMQP ones.
    variations=frozenset(Variation) - {Variation.LARGE},
    group=replace(GROUP, replicates=False),
)
