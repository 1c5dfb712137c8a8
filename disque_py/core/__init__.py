"""Memory and rules of one broker: pure, deterministic, no clock, chance, socket or file of its own."""
