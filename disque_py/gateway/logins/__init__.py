"""Logins to the gateway: who calls (tokens, users, certificates), and which operations the grants of a caller allow."""
