"""The calls that only this plugin has: to make a broker the source or the replica. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic.operations import MOVE_MATCHING
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.names import OWN
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.replica import beans

if TYPE_CHECKING:
    from dr_ctl.topologies.common.view import Queue
    from dr_ctl.topologies.replica.view import BrokerView, Peer

ROLE: Final = "replication role"
THROUGH: Final = "through"  # the site whose broker is asked, where it is not that of the call
MOST: Final = 100_000
KEPT: Final = f"{OWN}returned."
ONLY_THERE: Final = "they were never shipped, and lie only there"


def kept_queue(site: str, queue: str) -> str:
    """The name of dr-ctl's own queue for what only a returned site has, until it serves again."""
    return f"{KEPT}{site}.{queue}"


def hands_over(view: BrokerView, peer: Peer) -> Call:
    """Let a replica become the source: the present source gets the call and first ships everything to the replica."""
    asked = request(beans.plugin(peer.broker), beans.SET_ROLE, (beans.REPLICA, False))
    text = f"{peer.site} hands over to {view.site}: setReplicationRole(replica, false) there makes it the source"
    return Call(view.site, view.pair, Goal.OPEN, ROLE, {**asked, THROUGH: peer.site}, text)


def takes_over(view: BrokerView) -> Call:
    """Let a replica become the source by itself: messages that the replica has not got are lost to it."""
    asked = request(beans.plugin(view.broker), beans.SET_ROLE, (beans.SOURCE, True))
    return call(view, Goal.OPEN, ROLE, asked, "setReplicationRole(source, true)")


def gives_way(view: BrokerView, when: str | None = None) -> Call:
    """Make a source that came back beside another one its replica."""
    asked = request(beans.plugin(view.broker), beans.SET_ROLE, (beans.REPLICA, True))
    return call(view, Goal.LINK_UP, ROLE, asked, "setReplicationRole(replica, true)", when)


def may_set_aside(view: BrokerView, queue: Queue) -> Call:
    """Plan to set aside messages that only the returned site has; the run finds out which."""
    name = kept_queue(view.site, queue.name)
    asked = request(queue.bean, MOVE_MATCHING, ("JMSMessageID IN (…)", name))
    return call(view, Goal.MOVE, queue.name, asked, f"move them from {queue.name} to {name}", ONLY_THERE, MOST)


def may_put_back(view: BrokerView, queue: Queue) -> Call:
    name = kept_queue(view.site, queue.name)
    asked = request(queue.bean.replace(queue.name, name), MOVE_MATCHING, ("JMSMessageID IN (…)", queue.name))
    about = f"move what lies in {name} back to {queue.name}"
    return call(view, Goal.MOVE, name, asked, about, "only this site had some", MOST)
