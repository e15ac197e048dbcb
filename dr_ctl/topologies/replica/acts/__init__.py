"""Acts of the verbs that a pair with the replication plugin runs in its own way, as in `drafts`."""

from dr_ctl.topologies.replica.acts import activate, doors, reinstate, shipping

__all__ = ("activate", "doors", "reinstate", "shipping")
