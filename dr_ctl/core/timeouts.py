"""The length of each wait, as a value that a topology gets when it is opened, so that a test can be brief. Waits of a
single topology are a class in its package.
"""

from dataclasses import dataclass
from typing import TypeVar

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Waits in seconds. Settings and runbooks hold the waits that an operator may choose."""

    # Readings.
    login_s: float = 3.0  # for a broker's listener to answer one test login
    flag_s: float = 5.0  # for a small reading of open listeners, or of unapplied acknowledgements
    apart_s: float = 0.15
    """Between readings with unexplained counts: longer than between the two brokers' answers to one reading."""
    rates_s: float = 0.2  # between the two readings of a rate
    last_reading_s: float = 1.0
    """For a lost site right before the other is opened, and at the end of a run, even if its time was spent before."""
    port_s: float = 0.5  # for a port of a seemingly down site to take a connection
    measured_s: float = 10.0
    """For a broker that has just started to measure its disk: twice the default of an Artemis broker's scans."""
    poll_s: float = 0.02  # between readings of listeners, and of messages that clients hold

    # Limits of steps, unless the runbook says otherwise.
    catch_up_s: float = 60.0  # until few messages are under way, while clients work
    quiesce_s: float = 5.0  # for clients to finish what they hold
    settle_s: float = 5.0  # for acknowledgements that reached the target of a failover to be applied
    settle_poll_s: float = 0.01  # between readings of unapplied acknowledgements

    # Listeners.
    fence_s: float = 30.0  # until closed listeners are shown to be closed
    activate_s: float = 30.0  # until every pair is shown to serve
    opened_s: float = 1.0
    """For listeners to open: the plugin opens them up to a tenth of a second after its answer."""
    lock_s: float = 15.0  # to get a free lock: three times the default of a coordinator's check period
    again_s: float = 0.5  # between attempts to open a pair that was refused while others opened
    canary_s: float = 30.0  # for a rehearsal's messages to be seen at the other site, and for their acknowledgements
    probe_s: float = 10.0  # for one message to be sent and received
    undo_s: float = 30.0  # for an undo to be verified, with repeated attempts
    undo_poll_s: float = 0.25  # between the first two of those attempts; doubled after each,
    undo_max_poll_s: float = 2.0  # up to this

    # The gate, and comparisons.
    window_s: float = 0.05
    """How long the gate must hold at least: two readings at this distance were enough in measurements."""
    differs_s: float = 2.0  # how long sites must differ without a change until the gate fails
    compared_s: float = 15.0
    """How long ids may contradict counts: consumers of the serving site go on working."""

    # Links.
    link_poll_s: float = 0.1  # between readings of the links while clients work
    link_lost_s: float = 2.0
    """Until a link that is not attached is restarted; one that lost its peer for a moment connects within one retry."""
    link_between_s: float = 4.0
    """Until the next restart, doubled each time, so that not all happen while the peer is silent."""

    link_attach_s: float = 15.0  # until a link that a person restarted is attached

    # A shared store.
    store_starts_s: float = 15.0
    """For the console of a broker that has taken the store to answer; its clients' listeners open earlier."""

    store_taken_s: float = 90.0
    """For a free store to be taken, recovered and served. The console of a Classic broker answers fifteen seconds after
    its clients' listeners, and later on a busy machine."""

    store_ends_s: float = 30.0
    """For the process of a broker that gave up the store to end: ten to twenty-two seconds were measured."""

    of_topologies: tuple[object, ...] = ()  # waits of single topologies that differ from the defaults of their classes

    def of(self, kind: type[W]) -> W:
        return next((waits for waits in self.of_topologies if isinstance(waits, kind)), None) or kind()
