"""What is decided for each verb: the exact calls and what undoes them. Pure; a file a verb, as in `acts`."""

from dr_ctl.topologies.common.drafts import activate, check, fence, probe, quarantine, quiesce, release, settle, verify

__all__ = ("activate", "check", "fence", "probe", "quarantine", "quiesce", "release", "settle", "verify")
