"""What is done for the verbs that a mirror does in its own manner; named as in `drafts`."""

from dr_ctl.topologies.mirror.acts import reconcile, reinstate, residue, shipping

__all__ = ("reconcile", "reinstate", "residue", "shipping")
