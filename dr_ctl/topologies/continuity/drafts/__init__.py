"""What is decided for the verbs that the plugin does in its own manner. Pure; a file a verb, as in `acts`."""

from dr_ctl.topologies.continuity.drafts import catch_up, drain, probe, quarantine, reconcile, reinstate

__all__ = ("catch_up", "drain", "probe", "quarantine", "reconcile", "reinstate")
