"""`python -m disque_py.spark.pipelines`, and the file to give to spark-submit."""

from disque_py.spark.pipelines.command import PROGRAM, main

if __name__ == "__main__":
    main(prog_name=PROGRAM)
