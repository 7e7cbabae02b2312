"""The format `mqtt`: any broker as a stream of Spark that loses nothing.

    spark.readStream.format("mqtt").option("url", "mqtt://broker").option("topics", "raw/#")
        .option("clientId", "spark-1").load("var/spool")

Options
- `path`: the folder of the spool, also as the argument of `load`; on a cluster, one that the workers can read
- `url`: `mqtt://host:port` or `mqtts://host:port`
- `topics`: filters, with commas between them
- `clientId`: of the session at the broker; it stays the same over restarts, and belongs to this query alone
- `user`, `password`, and `ca`: a file with the certificates to trust
- `qos`: 1 (the default) or 2; `version`: 5 (the default) or 3.1.1
- `sessionExpiry`: how long the broker shall keep messages while no query runs (`7d`; MQTT 5 only)
- `keep`: how long the spool keeps what Spark has committed (`1d`)
- `failOnDataLoss`, `maxRowsPerBatch`, `startingOffsets`: as of the format `tidegate`

The columns are those of the stream `ingest`; those that only a node knows are null.

With `availableNow` a query takes what is in the spool and what the broker has waiting for it, and ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidegate.config.units import duration
from tidegate.errors import PipelineError
from tidegate.pipeline.source import options
from tidegate.pipeline.source.journal import OPTIONS, JournalStreamReader, columns, opened
from tidegate.pipeline.source.receiver import Broker
from tidegate.pipeline.source.shards import QueryOffset, Shards
from tidegate.pipeline.source.spool import Spool
from tidegate.store.journal import INGEST
from tidegate.topics import valid_filter
from tidegate.wire import V5, V311

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
VERSIONS: Final = {"5": V5, "3.1.1": V311}
BROKER: Final = ("url", "topics", "clientId", "user", "password", "qos", "version", "ca", "sessionExpiry", "keep")
"""Options that say which one, and how."""
GIVING: Final = 60.0  # seconds that a broker may take to hand over what waits, with `availableNow`


class MqttSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "mqtt"

    def schema(self) -> StructType:
        return columns(INGEST.name)

    def reader(self, schema: StructType) -> NoReturn:
        raise PipelineError(
            "a broker is a stream: use spark.readStream; what has been spooled is read with "
            'spark.read.format("tidegate").load(path)'
        )

    def streamReader(self, schema: StructType) -> MqttStreamReader:
        options.known(self.options, *OPTIONS, *BROKER)
        return MqttStreamReader(opened(self.options, INGEST.name), schema, self.options)


class MqttStreamReader(JournalStreamReader):
    """The spool, and in the process beside the driver also what fills it."""

    def __init__(self, shards: Shards, schema: StructType, given: Mapping[str, str]) -> None:
        super().__init__(shards, schema, given)
        self._broker = broker(given)
        self._keep = _seconds(given, "keep", "1d")
        self._spool: Spool | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._running().wait_until_quiet(GIVING)
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: QueryOffset, limit: ReadLimit) -> QueryOffset:
        self._running().check()
        return super().latestOffset(start, limit)

    def commit(self, end: QueryOffset) -> None:
        super().commit(end)
        self._running().keep_from(self._shards.own(end, self._shards.journal()).get("0", 0))

    def stop(self) -> None:
        if self._spool is not None:
            self._spool.stop()

    def _begin(self) -> None:
        self._running()
        super()._begin()

    def _running(self) -> Spool:
        if self._spool is None:
            spool = Spool(self._shards.path, self._broker, keep=self._keep)
            spool.start()
            self._spool = spool
        return self._spool


def broker(given: Mapping[str, str]) -> Broker:
    """What these options mean; PipelineError if they mean nothing."""
    url = options.needed(given, "url", "mqtt://localhost:1883")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise PipelineError(f"the option 'url' is {url!r}: {error}") from None
    if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.username is not None:
        raise PipelineError(
            "the option 'url' must be mqtt://host:port or mqtts://host:port; a name and a password are options of "
            "their own: user, password"
        )
    topics = tuple(each.strip() for each in options.needed(given, "topics", "raw/#").split(","))
    for each in topics:
        if not valid_filter(each):
            raise PipelineError(f"the option 'topics' has {each!r}, which is no topic filter; write for example raw/#")
    qos, version = given.get("qos", "1"), given.get("version", "5")
    if qos not in ("1", "2"):
        raise PipelineError(f"the option 'qos' is {qos!r}; write 1 or 2")
    if version not in VERSIONS:
        raise PipelineError(f"the option 'version' is {version!r}; write 5 or 3.1.1")
    ca = given.get("ca")
    if ca is not None and not Path(ca).is_file():
        raise PipelineError(f"the option 'ca' is {ca!r}, and there is no such file")
    return Broker(
        host=parts.hostname,
        port=port or PORTS[parts.scheme],
        topics=topics,
        client_id=options.needed(given, "clientId", "spark-1"),
        user=given.get("user"),
        password=given.get("password"),
        tls=parts.scheme == "mqtts",
        ca=None if ca is None else Path(ca).absolute(),
        version=VERSIONS[version],
        qos=int(qos),
        expiry=_seconds(given, "sessionExpiry", "7d"),
    )


def _seconds(given: Mapping[str, str], name: str, default: str) -> float:
    try:
        return duration(given.get(name, default))
    except ValueError as error:
        raise PipelineError(f"the option {name!r} {error}") from None
