"""Configuration: every directive declared once, files read and rewritten, no input or output of its own."""
