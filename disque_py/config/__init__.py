"""Configuration: declares each directive once, reads and rewrites config files as text; does no input or output."""
