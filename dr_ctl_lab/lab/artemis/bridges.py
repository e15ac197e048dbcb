"""Labs whose sites copy each queue to the other by a divert, a buffer and a core bridge, and tell the ids of what
their consumers have processed the same way.

Clients are let in per queue: a queue is closed where their role may do nothing at its address and it is paused. The
clients' acceptor is open at both sites, but boots closed: a broker that comes back from a loss must not let them in.
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
from dr_ctl_lab.lab.clients.client import ID_HEADER, Speaks
from dr_ctl_lab.lab.distribution import ARTEMIS
from dr_ctl_lab.lab.spec import IdsAt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

CLIENTS, BRIDGE, AGENT = "app", "bridge", "agent"  # roles
IDS: Final = "notification.idempotent-consumer"
ORIGIN: Final = "ARTEMIS_MESSAGE_ORIGIN"
TRANSFORMER: Final = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
# A consumer here waits for each of its acknowledgements: without it the disk gathers writes for 3.3 ms, and it
# does 250 messages a second instead of 700.
SYNC_NS: Final = 400_000
FINISH_S, POLL_S = 2.0, 0.02
TEXT: Final = "java.lang.String"
WAITS, WAITS_SINCE = "pending-ack-timeout", (2, 36)
# Options of a bridge, in broker.xml and over management alike. A bridge never gives up.
BRIDGED: Final = {
    "retry-interval": 500,
    "retry-interval-multiplier": 1.0,
    "initial-connect-attempts": -1,
    "reconnect-attempts": -1,
    "use-duplicate-detection": True,
    "confirmation-window-size": 1_048_576,
    # After a link broke with messages under way a bridge that is stopped waits so long for acknowledgements that never
    # come, and cannot be started meanwhile: a minute if it is not told.
    WAITS: 1_000,
}


def options(value: Options) -> Options:
    return create.only(value, (), "artemis-bridges")


def buffer(peer: str, address: str) -> str:
    return f"mirror.{peer}.{address}"


def bridge(peer: str, address: str) -> str:
    return f"bridge.{buffer(peer, address)}"


def own(site: str) -> str:
    """Filter of messages that began here: messages that the peer's bridges brought must not go back."""
    return f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL"


def configured(xml: str, spec: BrokerSpec) -> str:
    """Turn the stock broker.xml into that of one of two sites that copy to each other."""
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
    """A comma parts forwarding addresses: a divert to several of them would take the messages and keep none. An address
    with a wildcard stands for others, which would be closed with it, and `::` parts an address from its queue."""
    if odd := re.search(r"[,*#]|::", name):
        raise UsageError(f"{name!r} has {odd.group()!r}: sites joined by bridges can copy no such queue")


def _listeners(spec: BrokerSpec, copied: Sequence[str]) -> str:
    site = spec.site
    ports = site.ports
    return f"""<journal-buffer-timeout>{SYNC_NS}</journal-buffer-timeout>

      <connectors>{"".join(_connector(*row) for row in zip(_ways(spec), spec.link_uris, strict=True))}
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


def _ways(spec: BrokerSpec) -> list[str]:
    """The names of the connectors to the peer, one to each of its nodes."""
    return [spec.peer.name, *(f"{spec.peer.name}.{node}" for node in range(2, len(spec.link_uris) + 1))]


def _connector(name: str, uri: str) -> str:
    return f"""
         <connector name="{name}">{uri}</connector>"""


def _bridge(spec: BrokerSpec, address: str) -> str:
    site, peer = spec.site, spec.peer.name
    refs = "".join(f"<connector-ref>{name}</connector-ref>" for name in _ways(spec))
    known = {key: value for key, value in BRIDGED.items() if key != WAITS or spec.version >= WAITS_SINCE}
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
    """Ids that a consumer tells here are for the peer alone: ids leave the address, messages stay."""
    return f"""
         <divert name={quoteattr(f"divert.{address}")}>
            <address>{escape(address)}</address>
            <forwarding-address>mirror.{escape(address)}</forwarding-address>
            <filter string={quoteattr(own(site))}/>
            <exclusive>{str(address == IDS).lower()}</exclusive>
         </divert>"""


def _permissions(everywhere: str) -> str:
    """Clients may not delete, a bridge may only send; ids that arrived are the agent's alone."""
    sub = re.sub(r'(type="(?!delete)[A-Za-z]+" roles=)"amq"', rf'\1"amq,{CLIENTS}"', everywhere)
    sub = re.sub(r'(type="send" roles=")', rf"\1{BRIDGE},", sub)
    return f"""{sub}
         <security-setting match="{IDS}">
            <permission type="send" roles="amq,{CLIENTS},{BRIDGE}"/>
            <permission type="consume" roles="amq,{AGENT}"/>
            <permission type="browse" roles="amq"/>
         </security-setting>"""


class BridgesAdmin(Admin):
    """Management of one such broker. Clients are let in and kept out queue by queue."""

    def link_attached(self, peer: str) -> bool:
        """Every divert's buffer is consumed by a bridge: a broker that one refused login has stopped has none."""
        buffers = {buffer(peer, one["Address"]) for one in self._diverts()}
        consumed = {one["Name"] for one in self._queues("Name", "ConsumerCount") if one["ConsumerCount"]}
        return buffers <= consumed

    def clients_open(self, acceptor: str = "clients") -> bool:
        """Say whether some queue is served here."""
        return super().clients_open(acceptor) and bool(self.served(self._copied()))

    def open_clients(self, acceptor: str = "clients") -> None:
        if not super().clients_open(acceptor):
            super().open_clients(acceptor)
        for name in self._copied():
            self.open_queue(name)

    def close_clients(self, acceptor: str = "clients") -> None:
        """Keep clients out of every queue; their acceptor stays open."""
        del acceptor
        for name in self._copied():
            self.close_queue(name)

    def keep_out(self) -> None:
        """What keeps them out of each queue lasts."""
        self.close_clients()

    def open_queue(self, name: str) -> None:
        """Let clients in at one queue."""
        self._on_broker(f"removeSecuritySettings({TEXT})", name)
        self._execute(self._queue(name), "resume()")

    def close_queue(self, name: str) -> None:
        """Keep clients out of one queue until it is opened, restarts included. Clients may finish what they hold: an id
        that is written and not told yet would let the peer work on that message once more."""
        others = ["amq"] * 10
        others[0] += f",{BRIDGE}"  # may send: the peer's copies still arrive
        self._on_broker(f"addSecuritySettings({','.join([TEXT] * 11)})", name, *others)
        self._execute(self._queue(name), "pause(boolean)", True)
        until = time.monotonic() + FINISH_S
        while self._read(self._queue(name), "DeliveringCount") and time.monotonic() < until:
            time.sleep(POLL_S)
        self._on_broker(f"closeConsumerConnectionsForAddress({TEXT})", name)

    def prepare(self) -> None:
        """Begin at both sites with every queue closed, and with an open acceptor."""
        self.close_clients()
        super().open_clients()

    def served(self, queues: Sequence[str]) -> list[str]:
        if not super().clients_open():
            return []
        roles = self._beans("component=addresses,address=*", "RolesAsJSON")
        letting = {
            parts(bean)["address"]
            for bean, value in roles.items()
            if any(role["name"] == CLIENTS and role["send"] for role in json.loads(value["RolesAsJSON"]))
        }
        paused = {one["Name"] for one in self._queues("Name", "Paused") if one["Paused"]}
        return [name for name in queues if name in letting and name not in paused]

    def create_queue(self, name: str) -> None:
        """Make a queue with all that copies it, the divert last: before it nothing is captured. The queue is served
        where the others are."""
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
        divert["filter-string"] = own(site)
        self._on_broker(f"createDivert({TEXT})", json.dumps(divert))

    def _create_bridge(self, bridge: str, queue: str, password: str) -> None:
        site, peer = self._site.name, self._peer()
        document = {
            **BRIDGED,
            "name": bridge,
            "queue-name": buffer(peer, queue),
            "forwarding-address": queue,
            "transformer-configuration": {"class-name": TRANSFORMER, "properties": {ORIGIN: site}},
            "static-connectors": self._ways(),
            "user": BRIDGE,
            "password": password,
        }
        self._on_broker(f"createBridge({TEXT})", json.dumps(document))

    def _ways(self) -> list[str]:
        """The connectors to the peer: the first has its name. Others are for the nodes of this broker."""
        names = (str(one["name"]) for one in json.loads(self._read(self._broker, "ConnectorsAsJSON")))
        return sorted(name for name in names if not OF_NODES.match(name))

    def _peer(self) -> str:
        return self._ways()[0]

    def _diverts(self) -> list[dict[str, Any]]:
        pattern = "component=addresses,subcomponent=diverts,*"
        return list(self._beans(pattern, "Address", "Exclusive").values())

    def _copied(self) -> list[str]:
        return sorted(one["Address"] for one in self._diverts() if not one["Exclusive"])

    def _queues(self, *attributes: str) -> Iterable[dict[str, Any]]:
        return self._beans("component=addresses,subcomponent=queues,*", *attributes).values()

    def _beans(self, pattern: str, *attributes: str) -> dict[str, Any]:
        """Read all beans of a kind, by name; having none is no error here."""
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


# No MQTT: what it publishes would have to be diverted into a queue, past what keeps its clients out.
SPOKEN: Final = tuple(protocol for protocol in create.SPOKEN if protocol is not Speaks.MQTT)
PROTOCOLS: Final = ",".join(protocol.name for protocol in SPOKEN)

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
    ids=IdsAt(address=IDS, acceptor="agents", user=AGENT),
    speaks=SPOKEN,
    forwards=lambda _: False,
    group=GROUP,
)
