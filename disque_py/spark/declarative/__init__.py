"""A project for `spark-pipelines run`, to be copied: `disque-pipeline declarative` says where it is."""
