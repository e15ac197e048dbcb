"""The bounds of a failover now, without Spark."""
