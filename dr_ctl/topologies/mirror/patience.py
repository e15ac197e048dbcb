"""How long each wait of a mirror's pair lasts, beside those of all links."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MirrorPatience:
    """Waits in seconds."""

    left_over_s: float = 2.0
    """How long a message lies at one side of a mirror alone until nothing explains it."""
    look_s: float = 2.0
    """For the gate's numbers of one broker."""
    idle_s: float = 1.0
    """Without a move until a person is told that a link hangs."""
    hung_s: float = 8.0
    """Attached and shipping nothing until it is restarted: a large message may take a moment."""
