"""What is done for each verb that a BrokerSync pair does in its own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.brokersync.acts import reinstate, shipping

__all__ = ("reinstate", "shipping")
