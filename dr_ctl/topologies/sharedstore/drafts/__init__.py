"""Plans for verbs that brokers of a shared store do in their own way, a file a verb, as in `acts`. Pure."""

from dr_ctl.topologies.sharedstore.drafts import activate, reinstate, shipping

__all__ = ("activate", "reinstate", "shipping")
