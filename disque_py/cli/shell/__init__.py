"""disque-cli: one command, a conversation, or one of the modes that watch a node."""
