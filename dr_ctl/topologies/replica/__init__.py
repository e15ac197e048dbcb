"""Classic brokers with Amazon MQ's replication plugin: a source that serves, a replica that repeats what the source
did.

Built from the plugin's published names and states: dr-ctl never ran on the plugin itself."""
