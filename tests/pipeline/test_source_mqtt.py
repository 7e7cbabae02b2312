"""The format `mqtt` with a real Mosquitto: whoever is killed, nothing that was published is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.harness.servers import certificates
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from harness import PATIENCE
from pipeline.brokers import Mosquitto
from pipeline.journals import write
from tidegate.errors import PipelineError
from tidegate.pipeline.source import register, spool
from tidegate.pipeline.source.receiver import Broker
from tidegate.pipeline.source.spool import Spool
from tidegate.store.journal import INGEST, Reader
from tidegate.wire import V5, V311

SLOW = 240  # seconds: Spark is started by the test


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    server = Mosquitto(tmp_path / "mosquitto")
    yield server
    server.stop()


def broker(server: Mosquitto, **options: Any) -> Broker:
    usual = {"host": "127.0.0.1", "port": server.port, "topics": ("raw/#",), "client_id": "spark-1"}
    return Broker(**usual | options)


@pytest.fixture
def spooling() -> Iterator[Callable[..., Spool]]:
    running: list[Spool] = []

    def start(path: Path, broker: Broker) -> Spool:
        made = Spool(path, broker, keep=3600.0)
        made.start()
        running.append(made)
        return made

    yield start
    for each in running:
        each.stop()


def rows(path: Path) -> list[dict[str, Any]]:
    with Reader(path, INGEST, settled=True) as reader:
        return list(reader.rows())


def payloads(path: Path) -> set[str]:
    return {row["payload"].decode() for row in rows(path)}


def wait_for(path: Path, wanted: set[str]) -> None:
    deadline = time.monotonic() + 3 * PATIENCE
    while not wanted <= payloads(path):
        assert time.monotonic() < deadline, sorted(wanted - payloads(path))[:10]
        time.sleep(0.05)


def texts(numbers: range) -> set[str]:
    return {str(number) for number in numbers}


# the spool


@pytest.mark.parametrize(("version", "qos"), [(V5, 1), (V5, 2), (V311, 1), (V311, 2)])
def test_the_broker_keeps_what_comes_while_nobody_is_there(
    mosquitto: Mosquitto, spooling: Callable[..., Spool], tmp_path: Path, version: int, qos: int
) -> None:
    path = tmp_path / "spool"
    first = spooling(path, broker(mosquitto, version=version, qos=qos))
    first.wait_until_quiet(3 * PATIENCE)
    mosquitto.publish(range(50), qos=qos)
    wait_for(path, texts(range(50)))
    first.stop()
    mosquitto.publish(range(50, 100), qos=qos)
    second = spooling(path, broker(mosquitto, version=version, qos=qos))
    second.wait_until_quiet(3 * PATIENCE)
    found = rows(path)
    assert [row["payload"].decode() for row in found] == [str(number) for number in range(100)]
    assert {(row["topic"], row["qos"], row["retain"]) for row in found} == {("raw/a", qos, False)}
    assert len({row["id"] for row in found}) == 100


def test_a_broker_that_was_away(mosquitto: Mosquitto, spooling: Callable[..., Spool], tmp_path: Path) -> None:
    path = tmp_path / "spool"
    running = spooling(path, broker(mosquitto))
    running.wait_until_quiet(3 * PATIENCE)
    mosquitto.publish(range(20))
    wait_for(path, texts(range(20)))
    mosquitto.stop()
    mosquitto.start()
    mosquitto.publish(range(20, 40))
    wait_for(path, texts(range(40)))
    running.check()


SPOOLING = """
import sys, time
from pathlib import Path
from tidegate.pipeline.source.receiver import Broker
from tidegate.pipeline.source.spool import Spool

path, port, qos = sys.argv[1:]
Spool(Path(path), Broker(host="127.0.0.1", port=int(port), topics=("raw/#",), client_id="spark-1", qos=int(qos)),
      keep=3600.0).start()
time.sleep(1000)
"""


@pytest.mark.parametrize("qos", [1, 2])
def test_killed_again_and_again(mosquitto: Mosquitto, tmp_path: Path, qos: int) -> None:
    path = tmp_path / "spool"
    (path / "journal/ingest/0").mkdir(parents=True)
    sent = 0
    for _ in range(3):
        running = subprocess.Popen([sys.executable, "-c", SPOOLING, str(path), str(mosquitto.port), str(qos)])
        try:
            if not sent:
                deadline = time.monotonic() + 3 * PATIENCE
                while not payloads(path):  # until it has subscribed, what is published is for nobody
                    assert time.monotonic() < deadline
                    mosquitto.publish(["first"], qos=qos)
            mosquitto.publish(range(sent, sent + 1000), qos=qos)
            sent += 1000
        finally:
            os.kill(running.pid, signal.SIGKILL)  # wherever it may be
            running.wait()
    last = subprocess.Popen([sys.executable, "-c", SPOOLING, str(path), str(mosquitto.port), str(qos)])
    try:
        wait_for(path, texts(range(sent)))
    finally:
        last.kill()
        last.wait()
    found = [(row["id"], row["payload"]) for row in rows(path) if row["payload"] != b"first"]
    assert len({id for id, _ in found}) == sent, "those that came twice have the same id"
    assert all(count == 1 for count in Counter(payload for _, payload in set(found)).values())


def test_a_spool_belongs_to_one(
    mosquitto: Mosquitto, spooling: Callable[..., Spool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = spooling(tmp_path / "spool", broker(mosquitto))
    monkeypatch.setattr(spool, "RELEASE", 0.2)
    with pytest.raises(PipelineError, match=r"in use by process \d+.* belongs to one query"):
        spooling(tmp_path / "spool", broker(mosquitto, client_id="spark-2"))
    first.check()


def test_a_broker_that_is_not_there(mosquitto: Mosquitto, spooling: Callable[..., Spool], tmp_path: Path) -> None:
    mosquitto.stop()
    running = spooling(tmp_path / "spool", broker(mosquitto))
    with pytest.raises(PipelineError, match=rf"127\.0\.0\.1:{mosquitto.port} was not reached"):
        running.wait_until_quiet(0.5)
    mosquitto.start()
    running.wait_until_quiet(3 * PATIENCE)


def test_tls_and_passwords(spooling: Callable[..., Spool], tmp_path: Path) -> None:
    folder = certificates(tmp_path / "certificates")
    passwords = tmp_path / "passwords"
    passwords.write_text("mary:apple\n")
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    server = Mosquitto(tmp_path / "mosquitto", f"password_file {passwords}\n", certificates=folder)
    try:
        secure = {"port": server.tls_port, "tls": True}
        trusting = broker(server, **secure, ca=folder / "ca.pem", user="mary", password="apple")
        spooling(tmp_path / "a", trusting).wait_until_quiet(3 * PATIENCE)
        with pytest.raises(PipelineError, match=r"is not trusted .* option ca"):
            spooling(tmp_path / "b", broker(server, **secure)).wait_until_quiet(3 * PATIENCE)
        wrong = broker(server, user="mary", password="pear")
        with pytest.raises(PipelineError, match=r"refused the connection: .* user, password"):
            spooling(tmp_path / "c", wrong).wait_until_quiet(3 * PATIENCE)
    finally:
        server.stop()


# with Spark


def frame(spark: SparkSession, server: Mosquitto, path: Path, **options: object) -> DataFrame:
    register(spark)
    given = {"url": f"mqtt://127.0.0.1:{server.port}", "topics": "raw/#", "clientId": "spark-1"} | options
    return spark.readStream.format("mqtt").options(**given).load(str(path))


def run(spark: SparkSession, server: Mosquitto, folder: Path) -> list[str]:
    """One run of a job that takes what waits; what it has written so far."""
    writer = frame(spark, server, folder / "spool").writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    assert query.start(str(folder / "out")).awaitTermination(SLOW)
    return sorted(bytes(row["payload"]).decode() for row in spark.read.parquet(str(folder / "out")).collect())


@pytest.mark.timeout(SLOW)
def test_a_job_takes_what_has_come_meanwhile(spark: SparkSession, mosquitto: Mosquitto, tmp_path: Path) -> None:
    frame(spark, mosquitto, tmp_path / "spool")
    mosquitto.publish(["nobody was there yet"])
    query = frame(spark, mosquitto, tmp_path / "spool").writeStream.format("noop")
    running = query.option("checkpointLocation", str(tmp_path / "other")).start()
    try:
        deadline = time.monotonic() + SLOW
        while not payloads(tmp_path / "spool"):
            assert time.monotonic() < deadline
            mosquitto.publish(["first"])
    finally:
        running.stop()
    mosquitto.publish(range(30))
    first = run(spark, mosquitto, tmp_path)
    assert set(first) == {"first", *texts(range(30))}
    mosquitto.publish(range(30, 60))
    assert set(run(spark, mosquitto, tmp_path)) == {"first", *texts(range(60))}


@pytest.mark.timeout(SLOW)
def test_another_spool_is_an_error(spark: SparkSession, mosquitto: Mosquitto, tmp_path: Path) -> None:
    write(tmp_path / "spool", range(5))  # what a query before has left
    assert set(run(spark, mosquitto, tmp_path)) == texts(range(5))
    shutil.rmtree(tmp_path / "spool")
    write(tmp_path / "spool", range(100, 120))
    with pytest.raises(PySparkException, match=r"it is not the journal that was read before.* delete the checkpoint"):
        run(spark, mosquitto, tmp_path)


def test_what_is_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="a broker is a stream"):
        spark.read.format("mqtt").load(str(tmp_path)).count()


KILLED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
from tidegate.pipeline.source import register
from tidegate.pipeline.spark import session

url, folder = sys.argv[1:]
spark = session("killed", master="local[1]")
register(spark)
frame = spark.readStream.format("mqtt").option("url", url).option("topics", "raw/#").option("clientId", "spark-1")
query = frame.load(f"{folder}/spool").writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
query = query.start(f"{folder}/out")
print(spark.sparkContext._gateway.proc.pid, flush=True)
query.awaitTermination()
"""


@pytest.mark.timeout(SLOW)
def test_a_driver_that_is_killed(spark: SparkSession, mosquitto: Mosquitto, tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with (tmp_path / "said").open("wb") as said:
        command = [sys.executable, "-c", KILLED, f"mqtt://127.0.0.1:{mosquitto.port}", str(tmp_path)]
        driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
    assert driver.stdout is not None
    java = int(driver.stdout.readline())
    try:
        deadline = time.monotonic() + SLOW
        while not payloads(path):
            assert time.monotonic() < deadline
            mosquitto.publish(["first"])
        mosquitto.publish(range(500))
    finally:
        os.kill(java, signal.SIGKILL)
        driver.kill()
        driver.wait()
        driver.stdout.close()
    mosquitto.publish(range(500, 600))
    found = run(spark, mosquitto, tmp_path)
    assert set(found) == {"first", *texts(range(600))}
