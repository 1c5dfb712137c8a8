"""One turn of one node: the doors (dispatch), the driver (turn), and replies that wait for the disk (output_commit)."""
