"""RESP, the protocol of clients: requests as they are read, replies as they are written, words of a line."""
