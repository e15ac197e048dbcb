"""Acts of the verbs that a BrokerSync pair runs in its own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.brokersync.acts import reinstate, shipping

__all__ = ("reinstate", "shipping")
