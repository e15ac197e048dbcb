"""Spark itself: session, tasks, SQL texts."""
