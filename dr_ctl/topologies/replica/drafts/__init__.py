"""Plans for each verb that a pair with the replication plugin does in its own way, a file a verb. Pure."""

from dr_ctl.topologies.replica.drafts import activate, reinstate, shipping

__all__ = ("activate", "reinstate", "shipping")
