"""Everything that a mirrored installation does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.topologies.common.recipe import Procedure, Row
from dr_ctl.topologies.common.topology import COMMON, Kind
from dr_ctl.topologies.common.verbs import fence
from dr_ctl.topologies.mirror import reconcile, reinstate, shipping
from dr_ctl.topologies.mirror.checks import CHECKS
from dr_ctl.topologies.mirror.parity import ORIGINS_UP_TO
from dr_ctl.topologies.mirror.reading import READS
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import MirrorSnapshot

PROCEDURE: Final[Procedure[MirrorSnapshot, MirrorTools]] = {
    **COMMON,
    "catch-up": Row(shipping.draft_catch_up, shipping.catch_up, shipping.UNDO),
    "drain": Row(shipping.draft_drain, shipping.drain, shipping.UNDO),
    "restart-link": Row(shipping.draft_restart, shipping.restart, shipping.UNDO),
    # How a lost site is taken in again.
    "residue": Row(fence.draft_of_returned, reinstate.count_residue),
    "reinstate": Row(reinstate.draft, reinstate.act, reinstate.UNDO),
    "reconcile": Row(reconcile.draft, reconcile.act),
}
BY_COUNT: Final = (
    f"whether messages are the same, and not only as many: in queues deeper than {ORIGINS_UP_TO}, beside delayed "
    "messages, and where a broker does not show a message's origin"
)
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    READS,
    MirrorTools,
    "start its client acceptors",
    cannot_tell=(BY_COUNT,),
)
