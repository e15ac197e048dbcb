"""Labs of artemis-bridges: each queue, and the ids of processed messages, are copied to the other site by a divert, a
buffer and a core bridge.

Queues are closed one by one: the clients' role has no rights at the address, and the queue is paused. The clients'
acceptor is open at both sites, but closed after a start, so that a broker that comes back does not let clients in.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape, quoteattr

from dr_ctl.core.errors import UsageError
from dr_ctl.jolokia.values import parts, quote
from dr_ctl_lab.lab.artemis import create
from dr_ctl_lab.lab.artemis.admin import Admin
from dr_ctl_lab.lab.artemis.group import GROUP, OF_NODES
from dr_ctl_lab.lab.artemis.mirror import profile
from dr_ctl_lab.lab.clients.client import ID_HEADER, Proto
from dr_ctl_lab.lab.distribution import ARTEMIS
from dr_ctl_lab.lab.spec import IdExchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

CLIENTS, BRIDGE, AGENT = "app", "bridge", "agent"  # roles
IDS: Final = "notification.idempotent-consumer"
ORIGIN: Final = "ARTEMIS_MESSAGE_ORIGIN"
TRANSFORMER: Final = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
# A consumer waits for each acknowledgement: 700 messages/s; with the default, 3.3 ms between writes, it is 250.
SYNC_NS: Final = 400_000
FINISH_S, POLL_S = 2.0, 0.02
TEXT: Final = "java.lang.String"
ACK_TIMEOUT, ACK_TIMEOUT_SINCE = "pending-ack-timeout", (2, 36)
# Options of a bridge, in broker.xml and in management.
BRIDGED: Final = {
    "retry-interval": 500,
    "retry-interval-multiplier": 1.0,
    "initial-connect-attempts": -1,
    "reconnect-attempts": -1,
    "use-duplicate-detection": True,
    "confirmation-window-size": 1_048_576,
    # How long a stopped bridge waits for lost acknowledgements, and cannot be started. Default: a minute.
    ACK_TIMEOUT: 1_000,
}


def options(value: Options) -> Options:
    return create.only(value, (), "artemis-bridges")


def buffer(peer: str, address: str) -> str:
    return f"mirror.{peer}.{address}"


def bridge(peer: str, address: str) -> str:
    return f"bridge.{buffer(peer, address)}"


def origin_filter(site: str) -> str:
    """The filter for messages of this site: those of the peer must not go back."""
    return f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL"


def configured(xml: str, spec: BrokerSpec) -> str:
    """Change the stock broker.xml to that of one site."""
    for name in spec.queues:
        _check(name)
    peer = spec.peer.name
    copied = [*(name for name in spec.queues if create.plain(name)), IDS]
    xml = re.sub(r"<acceptors>.*?</acceptors>", lambda _: _listeners(spec, copied), xml, count=1, flags=re.DOTALL)
    xml = re.sub(
        r'<security-setting match="#">.*?</security-setting>',
        lambda item: _permissions(item.group()),
        xml,
        count=1,
        flags=re.DOTALL,
    )
    buffers = "".join(
        f"\n         <address name={quoteattr(f'mirror.{name}')}>"
        f"<anycast><queue name={quoteattr(buffer(peer, name))}/></anycast></address>"
        for name in copied
    )
    text = f'\n         <address name="{IDS}"><anycast><queue name="{IDS}"/></anycast></address>'
    xml = re.sub(r"<addresses>", lambda _: f"<addresses>{create.queues(spec)}{buffers}{text}", xml, count=1)
    return create.disk(xml)


def _check(name: str) -> None:
    """A comma separates forwarding addresses, a wildcard matches other addresses, `::` separates address and queue."""
    if variations := re.search(r"[,*#]|::", name):
        raise UsageError(f"{name!r} has {variations.group()!r}: sites joined by bridges can copy no such queue")


def _listeners(spec: BrokerSpec, copied: Sequence[str]) -> str:
    site = spec.site
    ports = site.ports
    return f"""<journal-buffer-timeout>{SYNC_NS}</journal-buffer-timeout>

      <connectors>{"".join(_connector(*row) for row in zip(_connectors(spec), spec.link_uris, strict=True))}
      </connectors>

      <acceptors>
         <acceptor name="clients">tcp://127.0.0.1:{ports["clients"]}?protocols={PROTOCOLS};autoStart=false</acceptor>
         <acceptor name="bridge">tcp://127.0.0.1:{ports["bridge"]}?protocols=CORE</acceptor>
         <acceptor name="agents">tcp://127.0.0.1:{ports["agents"]}?protocols=STOMP</acceptor>
      </acceptors>

      <bridges>{"".join(_bridge(spec, name) for name in copied)}
      </bridges>

      <diverts>{"".join(_divert(site.name, name) for name in copied)}
      </diverts>"""


def _connectors(spec: BrokerSpec) -> list[str]:
    """The names of the connectors to the peer's nodes."""
    return [spec.peer.name, *(f"{spec.peer.name}.{node}" for node in range(2, len(spec.link_uris) + 1))]


def _connector(name: str, uri: str) -> str:
    return f"""
         <connector name="{name}">{uri}</connector>"""


def _bridge(spec: BrokerSpec, address: str) -> str:
    site, peer = spec.site, spec.peer.name
    refs = "".join(f"<connector-ref>{name}</connector-ref>" for name in _connectors(spec))
    known = {key: value for key, value in BRIDGED.items() if key != ACK_TIMEOUT or spec.version >= ACK_TIMEOUT_SINCE}
    text = "".join(f"\n            <{key}>{json.dumps(value)}</{key}>" for key, value in known.items())
    return f"""
         <bridge name={quoteattr(bridge(peer, address))}>
            <queue-name>{escape(buffer(peer, address))}</queue-name>
            <forwarding-address>{escape(address)}</forwarding-address>
            <transformer>
               <class-name>{TRANSFORMER}</class-name>
               <property key="{ORIGIN}" value="{site.name}"/>
            </transformer>{text}
            <user>{BRIDGE}</user>
            <password>{site.others[BRIDGE]}</password>
            <static-connectors>{refs}</static-connectors>
         </bridge>"""


def _divert(site: str, address: str) -> str:
    """The divert of an address; that of ids is exclusive, because they are only for the peer."""
    return f"""
         <divert name={quoteattr(f"divert.{address}")}>
            <address>{escape(address)}</address>
            <forwarding-address>mirror.{escape(address)}</forwarding-address>
            <filter string={quoteattr(origin_filter(site))}/>
            <exclusive>{str(address == IDS).lower()}</exclusive>
         </divert>"""


def _permissions(xml: str) -> str:
    """Clients may not delete, a bridge may only send, only the agent consumes arrived ids."""
    sub = re.sub(r'(type="(?!delete)[A-Za-z]+" roles=)"amq"', rf'\1"amq,{CLIENTS}"', xml)
    sub = re.sub(r'(type="send" roles=")', rf"\1{BRIDGE},", sub)
    return f"""{sub}
         <security-setting match="{IDS}">
            <permission type="send" roles="amq,{CLIENTS},{BRIDGE}"/>
            <permission type="consume" roles="amq,{AGENT}"/>
            <permission type="browse" roles="amq"/>
         </security-setting>"""


class BridgesAdmin(Admin):
    """Management of one broker; queues are opened and closed one by one."""

    def link_attached(self, peer: str) -> bool:
        """Say whether a bridge consumes each divert's buffer: a refused login stops all bridges."""
        buffers = {buffer(peer, row["Address"]) for row in self._diverts()}
        consumed = {row["Name"] for row in self._queues("Name", "ConsumerCount") if row["ConsumerCount"]}
        return buffers <= consumed

    def clients_open(self, acceptor: str = "clients") -> bool:
        """Say whether any queue is open."""
        return super().clients_open(acceptor) and bool(self.served(self._copied()))

    def open_clients(self, acceptor: str = "clients") -> None:
        if not super().clients_open(acceptor):
            super().open_clients(acceptor)
        for name in self._copied():
            self.open_queue(name)

    def close_clients(self, acceptor: str = "clients") -> None:
        """Close every queue; the acceptor stays open."""
        del acceptor
        for name in self._copied():
            self.close_queue(name)

    def keep_out(self) -> None:
        """Close every queue; that survives a restart."""
        self.close_clients()

    def open_queue(self, name: str) -> None:
        """Open one queue."""
        self._on_broker(f"removeSecuritySettings({TEXT})", name)
        self._execute(self._queue(name), "resume()")

    def close_queue(self, name: str) -> None:
        """Close one queue until it is opened again, restarts included. Clients may finish delivered messages first: the
        peer would process a message whose id was stored and not sent again."""
        roles_of_rights = ["amq"] * 10
        roles_of_rights[0] += f",{BRIDGE}"  # may send: the peer's copies still arrive
        self._on_broker(f"addSecuritySettings({','.join([TEXT] * 11)})", name, *roles_of_rights)
        self._execute(self._queue(name), "pause(boolean)", True)
        until = time.monotonic() + FINISH_S
        while self._read(self._queue(name), "DeliveringCount") and time.monotonic() < until:
            time.sleep(POLL_S)
        self._on_broker(f"closeConsumerConnectionsForAddress({TEXT})", name)

    def prepare(self) -> None:
        """Close every queue, and open the acceptor."""
        self.close_clients()
        super().open_clients()

    def served(self, queues: Sequence[str]) -> list[str]:
        if not super().clients_open():
            return []
        roles = self._beans("component=addresses,address=*", "RolesAsJSON")
        allowed = {
            parts(bean)["address"]
            for bean, value in roles.items()
            if any(role["name"] == CLIENTS and role["send"] for role in json.loads(value["RolesAsJSON"]))
        }
        paused = {row["Name"] for row in self._queues("Name", "Paused") if row["Paused"]}
        return [name for name in queues if name in allowed and name not in paused]

    def create_queue(self, name: str) -> None:
        """Create a queue with buffer and bridge, and then the divert, which starts the copying. It is open where the
        other queues are."""
        _check(name)
        if name in self._copied():
            return
        serving = self.clients_open()
        super().create_queue(name)
        if not serving:
            self.close_queue(name)
        site, peer = self._site.name, self._peer()
        queue = {"name": buffer(peer, name), "address": f"mirror.{name}", "routing-type": "ANYCAST", "durable": True}
        self._on_broker(f"createQueue({TEXT},boolean)", json.dumps({**queue, "auto-create-address": True}), True)
        self._create_bridge(bridge(peer, name), name, self._site.others[BRIDGE])
        divert = {"name": f"divert.{name}", "address": name, "forwarding-address": f"mirror.{name}", "exclusive": False}
        divert["filter-string"] = origin_filter(site)
        self._on_broker(f"createDivert({TEXT})", json.dumps(divert))

    def _create_bridge(self, bridge: str, queue: str, password: str) -> None:
        site, peer = self._site.name, self._peer()
        document = {
            **BRIDGED,
            "name": bridge,
            "queue-name": buffer(peer, queue),
            "forwarding-address": queue,
            "transformer-configuration": {"class-name": TRANSFORMER, "properties": {ORIGIN: site}},
            "static-connectors": self._connectors(),
            "user": BRIDGE,
            "password": password,
        }
        self._on_broker(f"createBridge({TEXT})", json.dumps(document))

    def _connectors(self) -> list[str]:
        """The connectors to the peer, whose first has the peer's name, without those between the nodes of this
        broker."""
        names = (str(row["name"]) for row in json.loads(self._read(self._broker, "ConnectorsAsJSON")))
        return sorted(name for name in names if not OF_NODES.match(name))

    def _peer(self) -> str:
        return self._connectors()[0]

    def _diverts(self) -> list[dict[str, Any]]:
        pattern = "component=addresses,subcomponent=diverts,*"
        return list(self._beans(pattern, "Address", "Exclusive").values())

    def _copied(self) -> list[str]:
        return sorted(row["Address"] for row in self._diverts() if not row["Exclusive"])

    def _queues(self, *attributes: str) -> Iterable[dict[str, Any]]:
        return self._beans("component=addresses,subcomponent=queues,*", *attributes).values()

    def _beans(self, pattern: str, *attributes: str) -> dict[str, Any]:
        """Read all beans that match a pattern, by name; there may be none."""
        pattern = f"{self._broker},{pattern}"
        if not self._call({"type": "search", "mbean": pattern}):
            return {}
        document: dict[str, Any] = self._call({"type": "read", "mbean": pattern, "attribute": list(attributes)})
        return document

    def _queue(self, name: str) -> str:
        text = f"address={quote(name)},subcomponent=queues,routing-type={quote('anycast')},queue={quote(name)}"
        return f"{self._broker},component=addresses,{text}"

    def _on_broker(self, operation: str, *arguments: Any) -> None:
        self._execute(self._broker, operation, *arguments)

    def _execute(self, bean: str, operation: str, *arguments: Any) -> None:
        self._call({"type": "exec", "mbean": bean, "operation": operation, "arguments": list(arguments)})


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    by_name = {key: value for key, value in create.settings(site, secret).items() if key != "mirror"}
    ids = {"sqlite": f"ids/{site.broker}.sqlite", "header": ID_HEADER}
    return {**by_name, "bridge": ["bridge"], "lasting_fence": {"roles": [CLIENTS]}, "ids": ids}


# No MQTT: a divert from its topic into a queue would bypass the queue's rights.
CLIENT_PROTOCOLS: Final = tuple(protocol for protocol in create.CLIENT_PROTOCOLS if protocol is not Proto.MQTT)
PROTOCOLS: Final = ",".join(protocol.name for protocol in CLIENT_PROTOCOLS)

KIND: Final = create.artemis(
    joined="diverts and bridges join",
    distribution=ARTEMIS,
    ports=("http", "clients", "bridge", "agents"),
    link_target="bridge",
    options=options,
    create=partial(create.create, memory=create.memory, profile=profile, configured=configured, clients_role=CLIENTS),
    admin=BridgesAdmin,
    settings=settings,
    users=(BRIDGE, AGENT),
    ids=IdExchange(address=IDS, acceptor="agents", user=AGENT),
    protocols=CLIENT_PROTOCOLS,
    forwards=lambda _: False,
    group=GROUP,
)
