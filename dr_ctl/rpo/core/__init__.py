"""The mathematics of a history: from looks to rows that add up, Arrow in and out. No Spark, no files."""
