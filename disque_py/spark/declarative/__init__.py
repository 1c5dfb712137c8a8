"""A project for `spark-pipelines run`, to be copied. `disque-pipeline declarative` prints its folder."""
