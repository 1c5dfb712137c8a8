"""The simulated clients: producers, consumers, readers of events."""
