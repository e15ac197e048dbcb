"""How long each wait of a pair of the continuity plugin lasts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PluginPatience:
    """Waits in seconds."""

    window_s: float = 2.2
    """How long the gate must hold at least: bridges confirm up to two seconds late; a zero in between is not one."""
    poll_s: float = 0.05
    """Between looks at its flows."""
    look_s: float = 1.0
    """For the first such look behind the fence, where one that hangs is time without service."""
    left_over_s: float = 2.5
    """How long sites differ after a return until nothing explains it: longer than bridges confirm late."""
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
