"""The estimate of what would be lost: history rows, Spark transformations, plain results."""
