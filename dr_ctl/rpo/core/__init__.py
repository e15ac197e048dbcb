"""The mathematics of a history: from readings to rows that add up, Arrow in and out. No Spark, no files."""
