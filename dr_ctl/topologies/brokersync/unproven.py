"""Copies at the waiting site that nothing proves to be consumed, by id, while the other site serves."""

from dr_ctl.topologies.brokersync.access import Access
from dr_ctl.topologies.brokersync.listing import listed
from dr_ctl.topologies.brokersync.proven import covered
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.ids import Listed
from dr_ctl.topologies.common.consumed import Consumed


def own(access: Access, view: BrokerView, queue: str, listing: Listed) -> frozenset[str]:
    """The messages that only this broker ever had: not shipped yet, or sent here where nothing is shipped. Raises
    `BrokerError`."""
    if queue in view.copying:
        copies = view.copying[queue]
        return listed(access, view, copies).whole.ids if copies.depth else frozenset()
    arrives = view.arrives_by(queue)
    return frozenset(each for each, by in listing.came_by.items() if by != arrives)


def unproven(way: tuple[Access, Access], views: tuple[BrokerView, BrokerView], queue: str) -> frozenset[str]:
    """The copies of a queue that lie at the waiting site alone, unless the counters of the serving one cover them all.
    Serving site first. Raises `BrokerError`."""
    (serving, waiting), (here, there) = way, views
    lie = listed(waiting, there, there.named.get(queue), tries=ids.TRIES)
    copies = lie.whole.ids - own(waiting, there, queue, lie)
    listing = listed(serving, here, here.named.get(queue), tries=ids.TRIES).whole
    gone = covered(here, queue, copies, listing)
    return frozenset() if isinstance(gone, Consumed) else copies - listing.ids
