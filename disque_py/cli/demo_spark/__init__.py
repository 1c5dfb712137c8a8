"""The demonstration behind bin/demo --spark: the same flights, produced and indexed by Spark.

    flights_job.py    the Spark program, a separate process: rows into jobs, events into the index
    spark_process.py  that process: start, talk, always stop
    work.py           workers that remember which job was which flight
    agreement.py      the comparison of indexes and broker
    answers.py        the questions to the indexes, as text
    __main__.py       the order of events

Nodes, workers and display are those of the plain demonstration, `disque_py.cli.demo`.
"""
