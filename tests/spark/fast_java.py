"""A Java that starts Spark with less work, for continuous integration.

    python tests/spark/fast_java.py <folder>
    FAST_JAVA=<folder> pytest tests/spark

A Java that runs Spark loads fifteen thousand classes. It reads, checks and links each of them, which takes half of its
CPU time in the tests. With an archive of the classes as they are in memory (class data sharing), it maps them. This
program runs a short Spark program and makes the archive of its classes. The tests start a dozen Javas, so that pays,
above all while the machine would be idle. The program takes the Java that `ensure_java` finds.

The folder is a JAVA_HOME: Spark starts every process with `$JAVA_HOME/bin/java`, a launcher. An archive belongs to one
list of jars, each named once. Spark's scripts name one jar twice, and leave the order of the others to the file system.
So the launcher names all jars in alphabetical order. Java checks that archive and jars belong together, and starts as
usual if they don't.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from spark_settings import SETTINGS

# ensure_java() takes a launcher that drops the request for this module, which no test needs.
LAUNCHER: Final = """#!/bin/sh
for word; do
    shift
    case "$word" in
    --add-modules=jdk.incubator.vector) ;;
    */jars/\\*) set -- "$@" "$(cat {jars})" ;;
    *) set -- "$@" "$word" ;;
    esac
done
exec {java} {flags} "$@"
"""


def write_launcher(folder: Path, java: str, flags: str = "") -> None:
    """Write `bin/java` into the folder."""
    (folder / "bin").mkdir(exist_ok=True)
    words = {"jars": shlex.quote(str(folder / "jars")), "java": shlex.quote(java), "flags": flags}
    launcher = folder / "bin" / "java"
    launcher.write_text(LAUNCHER.format_map(words))
    launcher.chmod(0o755)


def use_spark(folder: Path, options: str) -> None:
    """Start Spark, read, group and write a few rows, run a stream, and wait for the end of its Java."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[1]").config("spark.local.dir", str(folder / "local"))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    options = f"{SETTINGS['spark.driver.extraJavaOptions']} {options}"
    spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    rows = spark.range(9).selectExpr("CAST(id AS string) AS body", "map('a', 'b') AS meta", "id % 2 AS k")
    rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(f"{folder}/in")
    stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/in").writeStream.format("parquet")
    stream = stream.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.read.parquet(f"{folder}/out").createOrReplaceTempView("t")
    ranked = "SELECT k, rank() OVER (PARTITION BY k ORDER BY body) AS n FROM t"
    spark.sql(f"SELECT k, sum(n) FROM ({ranked}) GROUP BY k").toArrow()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()


def main(folder: Path) -> None:
    """Make the folder. Raises CalledProcessError, and NoJavaError when there is no Java."""
    import pyspark

    from disque_py.spark import ensure_java

    java = str(Path(ensure_java()) / "bin" / "java")
    folder.mkdir(parents=True)
    jars = sorted(map(str, (Path(pyspark.__file__).parent / "jars").glob("*.jar")))
    (folder / "jars").write_text(":".join(jars))
    # The archive of Java's own classes, without Spark's: the Java of the wheel lacks it.
    base, archive = folder / "base.jsa", folder / "spark.jsa"
    subprocess.run([java, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"], stdout=subprocess.DEVNULL, check=True)
    write_launcher(folder, java)
    os.environ |= {"JAVA_HOME": str(folder), "PYSPARK_PYTHON": sys.executable}
    use_spark(folder / "made", f"-XX:SharedArchiveFile={base} -XX:ArchiveClassesAtExit={archive}")
    assert archive.stat().st_size > 50 << 20, "the archive lacks Spark's classes"
    write_launcher(folder, java, f"-XX:SharedArchiveFile={base}:{archive}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
