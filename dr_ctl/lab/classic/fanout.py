"""Labs of two brokers that know nothing of each other: producers write to both, consumers work at the one that serves.

Producers have a connector of their own, which is open at both sites. How many of the two have to confirm a message
stands in a file of the lab: whoever loses a site writes 1 there. Consumers share one store of processed ids, so that
what the other site still holds is not worked on twice. The options are those of the family.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.runs import write_text
from dr_ctl.lab.classic import create
from dr_ctl.lab.fanout import LEAST_FILE
from dr_ctl.lab.ids import SHARED, IdStore, store_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dr_ctl.lab.daemons import Process
    from dr_ctl.lab.make import Make

PRODUCERS: Final = "producers"
BOTH: Final = 2


def joined(instance: Path, make: Make) -> create.Joined:
    del instance
    address = f"stomp://127.0.0.1:{make.site.ports[PRODUCERS]}"
    return create.Joined(
        store=create.kahadb(),
        connectors=f'\n      <transportConnector name="{PRODUCERS}" uri="{address}"/>',
        boots_open=make.options["boots_open"],
    )


def beside(directory: Path, makes: Sequence[Make]) -> Process | None:
    """Nothing runs beside the brokers; what all clients share is laid down."""
    del makes
    write_text(directory / LEAST_FILE, f"{BOTH}\n")
    shared = store_at(directory, SHARED)
    shared.parent.mkdir(mode=0o700)
    IdStore(shared).close()
    return None


KIND: Final = create.classic(
    joined="are written to side by side",
    ports=(*create.PORTS, PRODUCERS),
    link_target=None,
    options=partial(create.options, also=(), topology="classic-fanout"),
    create=partial(create.create, joined=joined),
    complete=create.without_jolokia,
    links_at_boot=lambda _: False,
    beside=beside,
    fan_out=PRODUCERS,
)
