"""Acts of the verbs that a fan-out pair runs in its own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.fanout.acts import evening, reinstate

__all__ = ("evening", "reinstate")
