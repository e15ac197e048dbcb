"""The continuity plugin of Artemis: messages and acknowledgements shipped by bridges, sites activated by the plugin."""
