"""Memory and rules of one broker. The code is pure and deterministic: no clock, random source, socket or file."""
