"""Processes that run for a long time beside the operator."""
