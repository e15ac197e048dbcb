"""Everything that an installation that the continuity plugin joins does for the verbs of its runbooks, row by row."""

from typing import Final

from dr_ctl.topologies.common.recipe import Procedure, Row
from dr_ctl.topologies.common.topology import COMMON, Kind
from dr_ctl.topologies.common.verbs import activate, fence
from dr_ctl.topologies.continuity import activate as own_activate
from dr_ctl.topologies.continuity import reinstate, shipping
from dr_ctl.topologies.continuity.checks import CHECKS
from dr_ctl.topologies.continuity.reading import READS
from dr_ctl.topologies.continuity.tools import ContinuityTools
from dr_ctl.topologies.continuity.view import ContinuitySnapshot

# Losses of the plugin's way between the sites.
LOST_ON_THE_WAY: Final = (
    "what was rolled back, or held by a session that closed: the plugin deletes its copies (the drain names them)",
    "the time of delivery of scheduled messages: the plugin replaces it by its staging delay",
    "counts of queues that share an address, multicast ones above all: the plugin ships a message once for each",
    "messages that were put into a queue through management: they pass the plugin by",
)
BY_CONSOLE: Final = "activateSite of the continuity plugin, which starts its client acceptors"

PROCEDURE: Final[Procedure[ContinuitySnapshot, ContinuityTools]] = {
    **COMMON,
    "catch-up": Row(shipping.draft_catch_up, shipping.catch_up),
    "quarantine": reinstate.QUARANTINE,
    "drain": Row(shipping.draft_drain, shipping.drain),
    "activate": Row(activate.draft, own_activate.act, activate.UNDO),
    "probe": Row(own_activate.draft_probe, own_activate.probe),
    # How a lost site is taken in again.
    "residue": Row(fence.draft_of_returned, reinstate.count_residue),
    "reinstate": Row(reinstate.draft, reinstate.act, reinstate.UNDO),
    "reconcile": Row(reinstate.draft_reconcile, reinstate.reconcile),
}
open_: Final = Kind(PROCEDURE, CHECKS, READS, ContinuityTools, BY_CONSOLE, LOST_ON_THE_WAY)
