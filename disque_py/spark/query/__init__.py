"""The command `disque-query`: queries on an index, without Spark. DuckDB reads the Parquet files of the Delta tables.

tables      an index as a DuckDB connection        questions   the SQL
plots       tables and curves for a terminal       report      one HTML file with charts
"""
