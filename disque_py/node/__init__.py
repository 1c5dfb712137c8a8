"""One turn of one node: its entry points (dispatch), the driver (turn), and replies that wait for the disk."""
