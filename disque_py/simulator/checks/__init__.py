"""The rules that every simulated run is checked against."""
