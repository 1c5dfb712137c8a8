"""disque-cli: one command, an interactive shell, or one of the modes that watch a node."""
