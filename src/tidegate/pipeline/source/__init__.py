"""Spark reads journals (`tidegate`) and brokers (`mqtt`), in anybody's own job:

    from tidegate.pipeline.source import register

    register(spark)
    spark.readStream.format("tidegate").load("var/node")

`shards` knows the offsets of a journal and reads between two of them, `journal` shows that to Spark; `spool` brings the
messages of a broker into a journal before it acknowledges them, `mqtt` is both together.

`journal` and `mqtt` are classes of Spark's and import it; so they are imported when they are registered. On a cluster
Tidegate is installed on the workers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    from tidegate.pipeline.source.journal import TidegateSource
    from tidegate.pipeline.source.mqtt import MqttSource

    spark.dataSource.register(TidegateSource)
    spark.dataSource.register(MqttSource)
