"""Workloads: processes that work on a site's messages and move with the service, around any topology."""
