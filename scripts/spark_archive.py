"""Runs a small Spark job; Java writes the classes that it loads to an archive, from which tests load them quickly.

`make .venv/spark.jsa` calls it with the options for Java in SPARK_SUBMIT_OPTS.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tidegate.pipeline.spark import session


def main() -> None:
    spark = session("archive", master="local[2]")
    with tempfile.TemporaryDirectory() as folder:
        rows = str(Path(folder, "rows"))
        numbers = spark.range(100).selectExpr("id", "id % 3 AS part", "to_json(struct(id)) AS text")
        numbers.write.partitionBy("part").parquet(rows)
        stream = spark.readStream.schema(numbers.schema).parquet(rows)
        query = (
            stream.selectExpr("part", "from_json(text, 'id long').id AS id")
            .writeStream.option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: batch.groupBy("part").agg({"id": "avg"}).collect())
            .start()
        )
        query.awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # it writes the archive at its end


main()
