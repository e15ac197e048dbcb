"""Acts of the verbs that a fan-out pair runs in its own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.fanout.acts import levelling, reinstate

__all__ = ("levelling", "reinstate")
