"""Classic brokers with Amazon MQ's replication plugin: a source that serves, a replica that does what the source did.

Built from the plugin's published names and states: it never ran on the plugin itself."""
