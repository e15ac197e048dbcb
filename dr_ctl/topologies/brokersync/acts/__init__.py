"""Acts of the verbs that a BrokerSync pair runs in its own way; a file a verb, as in `drafts`."""

from dr_ctl.topologies.brokersync.acts import activate, reinstate, settling, shipping

__all__ = ("activate", "reinstate", "settling", "shipping")
