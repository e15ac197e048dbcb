"""How long each wait for a workload lasts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadPatience:
    """Waits in seconds."""

    read_s: float = 5.0
    """For a workload to say whether it runs."""
    poll_s: float = 0.1
    """Between looks at one that was started or stopped."""
