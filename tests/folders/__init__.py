"""The smallest topology: two sites on a file system. It is the example of docs/adding-a-topology.md."""
