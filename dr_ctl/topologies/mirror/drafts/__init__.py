"""What is decided for the verbs that a mirror does in its own manner. Pure; a file a verb, as in `acts`."""

from dr_ctl.topologies.mirror.drafts import catch_up, drain, reconcile, reinstate

__all__ = ("catch_up", "drain", "reconcile", "reinstate")
