"""How long each wait lasts, as a value: handed in where a topology is opened, so that a test can be brief."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits in seconds. Settings and runbooks hold the waits that an operator may choose."""

    # Looks.
    greet_s: float = 3.0
    """For a broker's door to greet one client."""
    flag_s: float = 5.0
    """For the one small look that only says which doors are open, or what is not applied."""
    apart_s: float = 0.15
    """Between looks where counts puzzle: longer than between the two brokers' answers to one look."""
    rates_s: float = 0.2
    """Between the two looks that rates are made of."""
    last_look_s: float = 1.0
    """For a lost site right before another is opened, and at the end of a run, whatever was spent on it before."""
    knock_s: float = 0.5
    """For a port of a site that seems to be down to take a connection."""
    poll_s: float = 0.02
    """Between looks at doors, and at what clients hold."""

    # Limits of steps, unless the runbook says otherwise.
    catch_up_s: float = 60.0
    """Until little is under way, while clients work."""
    quiesce_s: float = 5.0
    """For clients to finish what they hold."""
    settle_s: float = 5.0
    """For what reached the target of a failover to be applied there."""
    settle_poll_s: float = 0.01
    """Between looks at what is not applied."""

    # Workloads.
    workload_read_s: float = 5.0
    """For a workload to say whether it runs."""
    workload_poll_s: float = 0.1
    """Between looks at one that was started or stopped."""

    # Doors.
    fence_s: float = 30.0
    """Until closed doors are shown to be closed."""
    activate_s: float = 30.0
    """Until every pair is shown to serve."""
    opened_s: float = 1.0
    """For doors that were told to open to be open: the plugin opens them up to a tenth of a second after its answer."""
    again_s: float = 0.5
    """Between tries to open a pair that was refused beside others that opened."""
    probe_s: float = 10.0
    """For one message to go in and come out."""
    undo_s: float = 30.0
    """For an undo to be verified, trying again and again."""
    undo_poll_s: float = 0.25
    """Between those tries."""

    # The gate, and what is left over.
    mirror_window_s: float = 0.05
    """How long the gate of a mirror must hold at least: two looks so far apart were enough where this was measured."""
    plugin_window_s: float = 2.2
    """The same for the plugin, whose bridges confirm up to two seconds late: a zero in between is not one."""
    differs_s: float = 2.0
    """How long sites differ without a change until that is said to be so."""
    left_over_s: float = 2.0
    """How long a message lies at one side of a mirror alone until nothing explains it."""
    plugin_left_over_s: float = 2.5
    """The same for the plugin: longer than its bridges confirm late."""
    compared_s: float = 15.0
    """How long ids may contradict the counts beside them: consumers of the serving site go on working."""

    # Links of a mirror.
    link_look_s: float = 2.0
    """For the gate's numbers of one broker."""
    link_poll_s: float = 0.1
    """Between looks at the links while clients work."""
    link_idle_s: float = 1.0
    """Without a move until a person is told that a link hangs."""
    link_lost_s: float = 2.0
    """Unattached until it is restarted: one that lost its peer for a moment is back by itself within one retry."""
    link_hung_s: float = 8.0
    """Attached and shipping nothing until it is restarted: a large message may take a moment."""
    link_between_s: float = 4.0
    """Until the next restart, twice as long each time: quick ones can all fall into one bad moment of the peer."""

    link_attach_s: float = 15.0
    """Until a link that a person had restarted is attached."""

    # A shared store.
    store_starts_s: float = 15.0
    """For a broker that has taken the store to be managed: its clients' doors open a moment earlier."""

    store_ends_s: float = 30.0
    """For the process of a broker that gave up the store to end: ten to twenty-two seconds were measured."""

    # The plugin.
    plugin_poll_s: float = 0.05
    """Between looks at its flows."""
    plugin_look_s: float = 1.0
    """For the first such look behind the fence, where one that hangs is time without service."""
    taken_in_poll_s: float = 0.1
    """Between looks at them while a lost site is taken in."""
    stuck_s: float = 1.5
    """What is staged for delivery and does not move for so long was refused by its queue: it lies there already."""
    refused_s: float = 10.0
    """What a queue does not take for so long that takes what others send meanwhile it had before: bridges confirm late,
    and one whose broker hesitates must not be taken for refused."""
    watch_s: float = 3.0
    """How long no command may be under way: longer than bridges confirm late, and than most wait for their next try."""
    watch_intervals: int = 3
    """The same in waits between two tries of the bridges, where these are longer."""
    watch_poll_s: float = 0.2
    """Between looks at commands that are under way."""
    watch_at_most_s: float = 35.0
    """Until commands that are still under way are left alone; a bridge whose connection was dropped times out first."""
