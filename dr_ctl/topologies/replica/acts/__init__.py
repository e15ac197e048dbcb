"""What is done for each verb that a pair with the replication plugin does in its own way; as in `drafts`."""

from dr_ctl.topologies.replica.acts import activate, doors, reinstate, shipping

__all__ = ("activate", "doors", "reinstate", "shipping")
