"""`python -m disque_py.spark.pipelines`, and the file to give to spark-submit."""

import sys

from disque_py.spark.pipelines.command import main

if __name__ == "__main__":
    sys.exit(main())
