"""The real outside of a broker: process, clock, log, sockets. No lower package imports it."""
