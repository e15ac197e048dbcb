"""Plans for each verb that a BrokerSync pair does in its own way, a file a verb, as in `acts`. Pure."""

from dr_ctl.topologies.brokersync.drafts import reinstate, settling, shipping

__all__ = ("reinstate", "settling", "shipping")
