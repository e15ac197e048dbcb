"""Spark itself: session, class archive, SQL texts."""
