"""Labs of classic-brokersync: a composite queue fills a copy queue, and a network connector ships it.

Each site copies in its own direction. A message that arrived over a network connector has a broker path and is not
copied again.

Options: `one_way` names the only site that copies, as in the document that this topology comes from; `link_auto_start`
maps a site to whether its network connector starts at boot; and those of the family.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.lab.classic import create
from dr_ctl_lab.lab.classic.admin import network
from dr_ctl_lab.lab.spec import Group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

# To a selector a missing broker path is the word "null": IS NULL is never true.
SENT_HERE: Final = "JMSActiveMQBrokerPath = 'null'"
ONE_WAY: Final = "{queue}.DR"


def options(value: Options) -> Options:
    return create.options(value, also=("one_way", "link_auto_start"), topology="classic-brokersync")


def copies(peer: str, value: Options) -> str:
    """The pattern of the names of the copy queues to a peer."""
    return ONE_WAY if "one_way" in value else f"{{queue}}.to-{peer}"


def ships(spec: BrokerSpec) -> bool:
    """Say whether this site copies to its peer."""
    one_way = spec.options.get("one_way")
    return one_way is None or one_way == spec.site.name


def starts(spec: BrokerSpec) -> bool:
    auto: bool = spec.options.get("link_auto_start", {}).get(spec.site.name, True)
    return ships(spec) and auto


def topology_parts(instance: Path, spec: BrokerSpec) -> create.TopologyParts:
    del instance
    leaving = copies(spec.peer.name, spec.options)
    arriving = copies(spec.site.name, spec.options)
    composites = [_leaving(name, leaving.format(queue=name)) for name in spec.queues] if ships(spec) else []
    if spec.options.get("one_way") != spec.site.name:
        composites += [_arriving(arriving.format(queue=name), name) for name in spec.queues]
    shipped = [leaving.format(queue=name) for name in spec.queues]
    return create.TopologyParts(
        store=create.kahadb(spec),
        composites="".join(composites),
        network=_network(spec, shipped) if ships(spec) else "",
        stopped=(network(spec.peer.name),) if ships(spec) and not starts(spec) else (),
        boots_open=spec.options["boots_open"] or bool(spec.nodes),
    )


def _leaving(queue: str, copy: str) -> str:
    return f"""
      <compositeQueue name="{queue}" forwardOnly="false"><forwardTo>
        <filteredDestination selector="{SENT_HERE}" queue="{copy}"/>
      </forwardTo></compositeQueue>"""


def _arriving(copy: str, queue: str) -> str:
    return f"""
      <compositeQueue name="{copy}" forwardOnly="true"><forwardTo>
        <queue physicalName="{queue}"/>
      </forwardTo></compositeQueue>"""


def _network(spec: BrokerSpec, shipped: Sequence[str]) -> str:
    """A static bridge: it ships the named queues whether or not the peer has consumers."""
    again = "initialReconnectDelay=200&amp;maxReconnectDelay=500&amp;useExponentialBackOff=false"
    kind = "masterslave" if len(spec.link_uris) > 1 else "static"
    uris = [f"{uri}?wireFormat.maxInactivityDuration=5000" for uri in spec.link_uris]
    included = "".join(f'\n        <queue physicalName="{name}"/>' for name in shipped)
    return f"""
    <networkConnectors>
      <networkConnector name="{network(spec.peer.name)}" duplex="false" networkTTL="1" staticBridge="true"
                        userName="{create.BRIDGE}" password="{spec.site.others[create.BRIDGE]}"
                        uri="{kind}:({",".join(uris)})?{again}">
        <staticallyIncludedDestinations>{included}
        </staticallyIncludedDestinations>
      </networkConnector>
    </networkConnectors>"""


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    sync = {
        "stomp": f"stomp://127.0.0.1:{site.ports['sync']}",
        "username": create.AGENT,
        "password": {"file": f"{secret}.{create.AGENT}"},
        "connector": "sync",
    }
    return {**create.settings(site, secret), "sync": sync}


def complete(document: dict[str, Any], value: Options) -> dict[str, Any]:
    """Add the names of copy queues and network connector to each broker's settings."""
    sites = document["sites"]
    for name, peer in zip(sites, reversed(sites), strict=True):
        for broker in sites[name]["brokers"]:
            broker["copies"] = copies(peer, value)
            if value.get("one_way", name) == name:
                broker["network"] = network(peer)
    return create.without_jolokia(document, value)


KIND: Final = create.classic(
    joined="copy queues and a network connector join",
    link_target="openwire",
    options=options,
    create=partial(create.create, topology_parts=topology_parts),
    settings=settings,
    complete=complete,
    links_at_boot=starts,
    group=Group(ports=(), is_waiting=create.is_waiting),
)
