"""Programs for the command line: disque-cli and disque-cluster.

They talk to nodes as any client does, in plain RESP, and know nothing of the server's inside.
`disque_cli` is the shell (replies.py, connection.py, formats.py and the modes around them);
`cluster` starts, joins, watches and drains nodes.
"""
