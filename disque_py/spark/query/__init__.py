"""Questions to an index, answered without Spark: `disque-query`. DuckDB reads the Parquet files of the Delta tables.

tables      an index as a DuckDB connection        questions   the SQL
plots       tables and curves for a terminal       report      one HTML file with charts
"""
