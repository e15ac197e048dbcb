"""Plans for each verb that a fan-out pair does in its own way, a file a verb, as in `acts`. Pure."""

from dr_ctl.topologies.fanout.drafts import levelling, reinstate

__all__ = ("levelling", "reinstate")
