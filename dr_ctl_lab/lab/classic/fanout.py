"""Labs of classic-fanout: producers write to both brokers, consumers work at the one that serves.

Producers have a connector of their own, which is open at both sites. A file of the lab has the number of sites that
must confirm a message: an operator who loses a site writes 1. Consumers share a store of processed ids, so that a copy
at the other site is not processed again. The options are those of the family.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab.classic import create
from dr_ctl_lab.lab.clients.client import ID_HEADER, Proto
from dr_ctl_lab.lab.fanout import REQUIRED_FILE
from dr_ctl_lab.lab.ids import SHARED, IdStore, store_at
from dr_ctl_lab.lab.spec import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dr_ctl_lab.lab.daemons import Process
    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

PRODUCERS: Final = "producers"
ALL_SITES: Final = 2


def topology_parts(instance: Path, spec: BrokerSpec) -> create.TopologyParts:
    del instance
    address = f"auto://127.0.0.1:{spec.site.ports[PRODUCERS]}"
    return create.TopologyParts(
        store=create.kahadb(spec),
        connectors=f'\n      <transportConnector name="{PRODUCERS}" uri="{address}"/>',
        boots_open=spec.options["boots_open"] or bool(spec.nodes),
    )


def beside(directory: Path, specs: Sequence[BrokerSpec]) -> Process | None:
    """Create the files that all clients share; no further process is needed."""
    del specs
    write_text(directory / REQUIRED_FILE, f"{ALL_SITES}\n")
    shared = store_at(directory, SHARED)
    shared.parent.mkdir(mode=0o700)
    IdStore(shared).close()
    return None


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    sync = {
        "stomp": f"stomp://127.0.0.1:{site.ports['sync']}",
        "username": create.AGENT,
        "password": {"file": f"{secret}.{create.AGENT}"},
        "connector": "sync",
    }
    return {**create.settings(site, secret), "producers": [PRODUCERS, "openwire"], "sync": sync}


def complete(document: dict[str, Any], options: Options) -> dict[str, Any]:
    """Add the header with the id, the store of processed ids, and the workload for one site."""
    document |= {"id_header": ID_HEADER, "ids": {"sqlite": str(store_at(Path(), SHARED))}}
    for site in document["sites"].values():
        site["workloads"] = [one_is_enough()]
    return create.without_jolokia(document, options)


def one_is_enough() -> dict[str, Any]:
    """The workload that runs while confirmations of one site are enough."""

    def shell(script: str) -> list[str]:
        return ["/bin/sh", "-c", script]

    running = f"read -r least < {REQUIRED_FILE}; case $least in 1) exit 0;; {ALL_SITES}) exit 3;; esac; exit 1"
    return {
        "name": "one-is-enough",
        "kind": "command",
        "alone": True,
        "start": shell(f"echo 1 > {REQUIRED_FILE}"),
        "stop": shell(f"echo {ALL_SITES} > {REQUIRED_FILE}"),
        "state": shell(running),
    }


KIND: Final = create.classic(
    joined="are written to side by side",
    ports=(*create.PORTS, PRODUCERS),
    link_target=None,
    options=partial(create.options, also=(), topology="classic-fanout"),
    create=partial(create.create, topology_parts=topology_parts),
    settings=settings,
    complete=complete,
    links_at_boot=lambda _: False,
    beside=beside,
    fan_out=PRODUCERS,
    group=Group(ports=(), is_waiting=create.is_waiting),
    # No MQTT: its messages have no properties, and so no id.
    protocols=(Proto.STOMP, Proto.AMQP, Proto.OPENWIRE),
)
