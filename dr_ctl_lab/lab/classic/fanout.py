"""Labs of two brokers that know nothing of each other: producers write to both, consumers work at the one that serves.

Producers have a connector of their own, which is open at both sites. How many of the two have to confirm a message
stands in a file of the lab: an operator who loses a site writes 1 there. Consumers share one store of processed ids, so
that what the other site still holds is not worked on twice. The options are those of the family.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab.classic import create
from dr_ctl_lab.lab.clients.client import ID_HEADER, Speaks
from dr_ctl_lab.lab.fanout import LEAST_FILE
from dr_ctl_lab.lab.ids import SHARED, IdStore, store_at
from dr_ctl_lab.lab.spec import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dr_ctl_lab.lab.daemons import Process
    from dr_ctl_lab.lab.spec import BrokerSpec, Options
    from dr_ctl_lab.lab.state import SiteState

PRODUCERS: Final = "producers"
BOTH: Final = 2


def joined(instance: Path, spec: BrokerSpec) -> create.Joined:
    del instance
    address = f"auto://127.0.0.1:{spec.site.ports[PRODUCERS]}"
    return create.Joined(
        store=create.kahadb(spec),
        connectors=f'\n      <transportConnector name="{PRODUCERS}" uri="{address}"/>',
        boots_open=spec.options["boots_open"] or bool(spec.nodes),
    )


def beside(directory: Path, specs: Sequence[BrokerSpec]) -> Process | None:
    """Lay down what all clients share; no process runs beside the brokers."""
    del specs
    write_text(directory / LEAST_FILE, f"{BOTH}\n")
    shared = store_at(directory, SHARED)
    shared.parent.mkdir(mode=0o700)
    IdStore(shared).close()
    return None


def settings(site: SiteState, secret: str) -> dict[str, Any]:
    own = {
        "stomp": f"stomp://127.0.0.1:{site.ports['sync']}",
        "username": create.AGENT,
        "password": {"file": f"{secret}.{create.AGENT}"},
        "connector": "sync",
    }
    return {**create.settings(site, secret), "producers": [PRODUCERS, "openwire"], "sync": own}


def complete(document: dict[str, Any], options: Options) -> dict[str, Any]:
    """Say by what messages are known at both sites, where consumers write down what they did, and how producers are
    told that one site is enough."""
    document |= {"id_header": ID_HEADER, "ids": {"sqlite": str(store_at(Path(), SHARED))}}
    for site in document["sites"].values():
        site["workloads"] = [one_is_enough()]
    return create.without_jolokia(document, options)


def one_is_enough() -> dict[str, Any]:
    """The workload that runs while producers may go on without the other site."""

    def shell(words: str) -> list[str]:
        return ["/bin/sh", "-c", words]

    running = f"read -r least < {LEAST_FILE}; case $least in 1) exit 0;; {BOTH}) exit 3;; esac; exit 1"
    return {
        "name": "one-is-enough",
        "kind": "command",
        "alone": True,
        "start": shell(f"echo 1 > {LEAST_FILE}"),
        "stop": shell(f"echo {BOTH} > {LEAST_FILE}"),
        "state": shell(running),
    }


KIND: Final = create.classic(
    joined="are written to side by side",
    ports=(*create.PORTS, PRODUCERS),
    link_target=None,
    options=partial(create.options, also=(), topology="classic-fanout"),
    create=partial(create.create, joined=joined),
    settings=settings,
    complete=complete,
    links_at_boot=lambda _: False,
    beside=beside,
    fan_out=PRODUCERS,
    group=Group(ports=(), waits=create.waits),
    # No MQTT: its messages have no properties, and so none by which both sites know one.
    speaks=(Speaks.STOMP, Speaks.AMQP, Speaks.OPENWIRE),
)
