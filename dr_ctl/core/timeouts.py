"""The length of each wait, as a value that is passed in where a topology is opened, so that a test can be brief. Waits
of a single topology stand in its package, in a class of its own.
"""

from dataclasses import dataclass
from typing import TypeVar

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Waits in seconds. Settings and runbooks hold the waits that an operator may choose."""

    # Looks.
    login_s: float = 3.0  # for a broker's listener to answer one test login
    flag_s: float = 5.0  # for the one small reading that only says which listeners are open, or what is not applied
    apart_s: float = 0.15
    """Between readings where counts puzzle: longer than between the two brokers' answers to one reading."""
    rates_s: float = 0.2  # between the two readings that rates are made of
    last_reading_s: float = 1.0
    """For a lost site right before another is opened, and at the end of a run, whatever was spent on it before."""
    port_s: float = 0.5  # for a port of a site that seems to be down to take a connection
    measured_s: float = 10.0
    """For a broker that has just started to measure its disk: twice the default of an Artemis broker's scans."""
    poll_s: float = 0.02  # between readings of listeners, and of what clients hold

    # Limits of steps, unless the runbook says otherwise.
    catch_up_s: float = 60.0  # until little is under way, while clients work
    quiesce_s: float = 5.0  # for clients to finish what they hold
    settle_s: float = 5.0  # for what reached the target of a failover to be applied there
    settle_poll_s: float = 0.01  # between readings of what is not applied

    # Listeners.
    fence_s: float = 30.0  # until closed listeners are shown to be closed
    activate_s: float = 30.0  # until every pair is shown to serve
    opened_s: float = 1.0
    """For listeners that were told to open to be open: the plugin opens them up to a tenth of a second after its
    answer."""
    lock_s: float = 15.0  # for a lock that is free to be got: three times the default of a coordinator's check period
    again_s: float = 0.5  # between tries to open a pair that was refused beside others that opened
    canary_s: float = 30.0  # for a rehearsal's messages to be seen at the other site, and for their acknowledgements
    probe_s: float = 10.0  # for one message to go in and come out
    undo_s: float = 30.0  # for an undo to be verified, trying again and again
    undo_poll_s: float = 0.25  # between the first two of those tries; twice as long after each of them,
    undo_max_poll_s: float = 2.0  # up to this: a broker that is sick is not asked again and again

    # The gate, and what is left over.
    window_s: float = 0.05
    """How long the gate must hold at least: two readings so far apart were enough where this was measured."""
    differs_s: float = 2.0  # how long sites differ without a change until that is said to be so
    compared_s: float = 15.0
    """How long ids may contradict the counts beside them: consumers of the serving site go on working."""

    # Links.
    link_poll_s: float = 0.1  # between readings of the links while clients work
    link_lost_s: float = 2.0
    """Unattached until it is restarted: one that lost its peer for a moment is back by itself within one retry."""
    link_between_s: float = 4.0
    """Until the next restart, twice as long each time: quick ones can all fall into one bad moment of the peer."""

    link_attach_s: float = 15.0  # until a link that a person had restarted is attached

    # A shared store.
    store_starts_s: float = 15.0
    """For a broker that has taken the store to be managed: its clients' listeners open a moment earlier."""

    store_taken_s: float = 90.0
    """For a free store to be taken, recovered and seen served: nothing else can be done meanwhile. The console of a
    Classic broker answers fifteen seconds after its clients' listeners, and later on a busy machine."""

    store_ends_s: float = 30.0
    """For the process of a broker that gave up the store to end: ten to twenty-two seconds were measured."""

    own: tuple[object, ...] = ()  # waits of single topologies, where they are not what their classes say

    def of(self, kind: type[W]) -> W:
        return next((waits for waits in self.own if isinstance(waits, kind)), None) or kind()
