"""What `examples/` holds for monitoring: tried by the tools that read it."""
