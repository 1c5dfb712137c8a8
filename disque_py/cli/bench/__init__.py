"""disque-bench: measures job brokers on this machine, one after the other.

main         the command line
contestants  the servers that can be measured, and how to start each
dialects     the bytes of their protocols
processes    servers as processes: started, joined, ended
proc         CPU time and memory of process trees, from /proc
load         connections that keep a server busy
paced        plain sockets for single times: a fixed rate, wake-ups, timers
measures     the tests
figures      medians, ranges, ratios, percentiles
report       JSON, Markdown, tables for the terminal
page         the HTML page
floor        a server that only answers PING
"""
