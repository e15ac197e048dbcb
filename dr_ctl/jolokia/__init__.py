"""Management of a broker over HTTP and JSON."""
