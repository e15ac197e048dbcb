"""Everything that an installation of diverts and bridges does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.topologies.bridges import activate, fence, reinstate, shipping, trim
from dr_ctl.topologies.bridges.checks import CHECKS
from dr_ctl.topologies.bridges.reading import READS
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.recipe import Procedure, Row
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import COMMON, Kind

PROCEDURE: Final[Procedure[Snapshot[BrokerView], BridgesTools]] = {
    **COMMON,
    "catch-up": Row(shipping.draft_catch_up, shipping.catch_up, shipping.UNDO),
    "fence": Row(fence.draft, fence.act, fence.UNDO),
    "drain": Row(shipping.draft_drain, shipping.drain, shipping.UNDO),
    "activate": Row(activate.draft, activate.act, activate.UNDO),
    "unfence": Row(fence.draft_unfence, fence.unfence, fence.UNDO_UNFENCE),
    "restart-link": Row(shipping.draft_restart, shipping.restart, shipping.UNDO),
    "trim": Row(trim.draft, trim.act),
    # How a lost site is taken in again.
    "residue": Row(fence.draft_of_returned, fence.residue),
    "reinstate": Row(reinstate.draft, reinstate.act, reinstate.UNDO),
    "reconcile": Row(reinstate.draft_reconcile, reinstate.reconcile),
}
open_: Final = Kind(
    PROCEDURE,
    CHECKS,
    READS,
    BridgesTools,
    "give the clients' roles their rights at each queue's address back",
    moves_parts=True,
)
