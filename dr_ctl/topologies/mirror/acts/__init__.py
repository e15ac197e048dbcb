"""Acts of the verbs that a mirror runs in its own manner; named as in `drafts`."""

from dr_ctl.topologies.mirror.acts import reconcile, reinstate, residue, shipping

__all__ = ("reconcile", "reinstate", "residue", "shipping")
