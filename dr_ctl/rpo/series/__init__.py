"""The mathematics of a history over NumPy arrays: cut, envelope, step functions, histograms. No Spark, no files."""
