"""The real outside of a broker: process, clock, log, sockets. Nothing below imports it."""
