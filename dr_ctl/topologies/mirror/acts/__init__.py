"""What is done for the verbs that a mirror does in its own manner; a file a verb, as in `drafts`."""

from dr_ctl.topologies.mirror.acts import catch_up, drain, reconcile, reinstate, residue

__all__ = ("catch_up", "drain", "reconcile", "reinstate", "residue")
