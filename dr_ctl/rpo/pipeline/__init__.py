"""The pipeline in Spark: from the history's files to the hours' table and the figures made of it."""
