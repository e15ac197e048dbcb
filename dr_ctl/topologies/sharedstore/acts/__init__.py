"""Acts of the verbs that brokers of a shared store run in their own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.sharedstore.acts import activate, reinstate, shipping

__all__ = ("activate", "reinstate", "shipping")
