"""Spark itself: its session, its class archive, its SQL texts."""
