"""RESP, the protocol of clients: reading requests, writing replies, splitting lines into words."""
