"""Adapters for task frameworks, on top of the client library. Each needs an extra of its own (pyproject.toml)."""
