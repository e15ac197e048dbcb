"""What is done for each verb, and how it is proven and undone; a file a verb, as in `drafts`."""

from dr_ctl.topologies.common.acts import activate, check, fence, probe, quarantine, quiesce, release, settle, verify

__all__ = ("activate", "check", "fence", "probe", "quarantine", "quiesce", "release", "settle", "verify")
