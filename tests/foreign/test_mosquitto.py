"""mosquitto_pub, mosquitto_sub and mosquitto_rr, 3.1.1 and 5."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from foreign.conftest import Broker
from harness import PATIENCE
from processes import needs

VERSIONS = ("mqttv311", "mqttv5")
both = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    needs("mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "stdbuf")


def publish(
    broker: Broker, version: str, *arguments: object, stdin: bytes = b"", kind: str = "tcp", fails: bool = False
) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        ["mosquitto_pub", "-h", broker.host, "-p", str(broker.port(kind)), "-V", version, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode != 0) == fails, done
    return done


class Subscriber:
    """A running mosquitto_sub; what it says is read as it says it."""

    def __init__(self, broker: Broker, version: str, *arguments: object, kind: str = "tcp") -> None:
        command = ["mosquitto_sub", "-d", "-h", broker.host, "-p", str(broker.port(kind)), "-V", version]
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", *command, "-F", "> %t %q %r %p", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.decode().rstrip("\n"))
        self._lines.put(None)

    def wait_for(self, beginning: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while (line := self._lines.get(timeout=max(0.01, deadline - time.monotonic()))) is not None:
            self.said.append(line)
            if line.startswith(beginning):
                return line
        raise AssertionError(f"no {beginning!r} in {self.said}")

    def message(self) -> str:
        return self.wait_for("> ").removeprefix("> ")

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def subscriber(broker: Broker, version: str, *arguments: object, kind: str = "tcp") -> Iterator[Subscriber]:
    """A mosquitto_sub that is subscribed."""
    running = Subscriber(broker, version, *arguments, kind=kind)
    try:
        running.wait_for("Subscribed")
        yield running
    finally:
        running.kill()


@both
def test_messages_at_every_qos(broker: Broker, version: str) -> None:
    topic = broker.name("m-qos")
    with subscriber(broker, version, "-t", f"{topic}/#", "-q", 2, "-C", 3) as sub:
        for qos in (0, 1, 2):
            publish(broker, version, "-t", f"{topic}/{qos}", "-q", qos, "-m", f"message {qos}")
            assert sub.message() == f"{topic}/{qos} {qos} 0 message {qos}"
        assert sub.end() == 0


@pytest.mark.parametrize(("publisher", "receiver"), [VERSIONS, VERSIONS[::-1]])
def test_between_the_versions(broker: Broker, publisher: str, receiver: str) -> None:
    topic = broker.name("m-cross")
    with subscriber(broker, receiver, "-t", topic, "-q", 1) as sub:
        for qos in (0, 1, 2):
            publish(broker, publisher, "-t", topic, "-q", qos, "-m", f"message {qos}")
            assert sub.message() == f"{topic} {min(qos, 1)} 0 message {qos}"


@both
def test_retained(broker: Broker, version: str) -> None:
    topic = broker.name("m-retained")
    publish(broker, version, "-t", topic, "-q", 1, "-r", "-m", "kept")
    with subscriber(broker, version, "-t", topic, "-q", 1) as sub:
        assert sub.message() == f"{topic} 1 1 kept"
        publish(broker, version, "-t", topic, "-q", 1, "-r", "-n")
        assert sub.message() == f"{topic} 1 0 "
    with subscriber(broker, version, "-t", topic) as sub:
        publish(broker, version, "-t", topic, "-m", "live")
        assert sub.message() == f"{topic} 0 0 live"


@both
def test_will_when_the_client_is_killed(broker: Broker, version: str) -> None:
    topic = broker.name("m-will")
    will = ("--will-topic", f"{topic}/will", "--will-payload", "gone", "--will-qos", 1, "--will-retain")
    with subscriber(broker, version, "-t", f"{topic}/#", "-q", 1) as watcher:
        with subscriber(broker, version, "-t", f"{topic}/dying", *will) as dying:
            dying.kill()
        assert watcher.message() == f"{topic}/will 1 0 gone"
    with subscriber(broker, version, "-t", f"{topic}/#", "-q", 1) as late:
        assert late.message() == f"{topic}/will 1 1 gone"
    publish(broker, version, "-t", f"{topic}/will", "-q", 1, "-r", "-n")


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_persistent_session_gets_what_it_missed(broker: Broker, version: str, qos: int) -> None:
    topic, name = broker.name("m-queued"), broker.name("m-keeper")
    keeper = ("-i", name, "-c", "-t", topic, "-q", qos)
    with subscriber(broker, version, *keeper, "-E") as sub:
        assert sub.end() == 0
    lines = [f"line {number}" for number in range(30)]
    publish(broker, version, "-t", topic, "-q", qos, "-l", stdin="\n".join(lines).encode())
    again = Subscriber(broker, version, *keeper, "-C", 30)
    try:
        assert [again.message() for _ in lines] == [f"{topic} {qos} 0 {line}" for line in lines]
        assert again.end() == 0
    finally:
        again.kill()


@both
def test_password(broker: Broker, version: str) -> None:
    topic = broker.name("m-password")
    right = ("-u", broker.user, "-P", broker.password)
    with subscriber(broker, version, "-t", topic, *right) as sub:
        publish(broker, version, "-t", topic, "-m", "in", "-q", 1, *right)
        assert sub.message() == f"{topic} 0 0 in"
        publish(broker, version, "-t", topic, "-m", "never", "-q", 1, "-u", broker.user, "-P", "wrong", fails=True)
        publish(broker, version, "-t", topic, "-m", "never", "-q", 1, "-u", broker.user, fails=True)
        publish(broker, version, "-t", topic, "-m", "last", "-q", 1, *right)
        assert sub.message().endswith("last")


@both
def test_take_over(broker: Broker, version: str) -> None:
    topic, name = broker.name("m-take-over"), broker.name("m-taken")
    same = ("-i", name, "-t", topic)
    # an mosquitto_sub of 3.1.1 connects again by itself, and so takes over in its turn
    told = "Received DISCONNECT (142)" if version == "mqttv5" else f"Client {name} sending CONNECT"
    with subscriber(broker, version, *same) as first, subscriber(broker, version, *same):
        first.wait_for(told)


@both
def test_large_payload(broker: Broker, version: str, tmp_path: Path) -> None:
    topic = broker.name("m-large")
    file = tmp_path / "payload"
    file.write_bytes(os.urandom(250_000).hex().encode())
    with subscriber(broker, version, "-t", topic, "-q", 2) as sub:
        for qos in (0, 1, 2):
            publish(broker, version, "-t", topic, "-q", qos, "-f", file)
            assert sub.message() == f"{topic} {qos} 0 {file.read_text()}"


@both
def test_many_messages_none_lost_in_order(broker: Broker, version: str) -> None:
    topic = broker.name("m-many")
    lines = [f"line {number}" for number in range(2000)]
    with subscriber(broker, version, "-t", topic, "-q", 1, "-C", 2000) as sub:
        publish(broker, version, "-t", topic, "-q", 1, "-l", stdin="\n".join(lines).encode())
        assert [sub.message() for _ in lines] == [f"{topic} 1 0 {line}" for line in lines]
        assert sub.end() == 0


@both
def test_tls(broker: Broker, version: str) -> None:
    topic = broker.name("m-tls")
    tls = ("--cafile", broker.ca)
    with subscriber(broker, version, "-t", topic, "-q", 1, *tls, kind="tls") as sub:
        publish(broker, version, "-t", topic, "-q", 1, "-m", "encrypted", *tls, kind="tls")
        assert sub.message() == f"{topic} 1 0 encrypted"
    publish(broker, version, "-t", topic, "-m", "to a plain port", *tls, kind="tcp", fails=True)
    publish(broker, version, "-t", topic, "-m", "to a TLS port", kind="tls", fails=True)


@both
def test_client_certificate(broker: Broker, version: str) -> None:
    topic = broker.name("m-mtls")
    cert, key = broker.certificate(broker.name("m-device"))
    tls = ("--cafile", broker.ca, "--cert", cert, "--key", key)
    with subscriber(broker, version, "-t", topic, "-q", 1, *tls, kind="mtls") as sub:
        publish(broker, version, "-t", topic, "-q", 1, "-m", "known", *tls, kind="mtls")
        assert sub.message() == f"{topic} 1 0 known"
    publish(broker, version, "-t", topic, "-q", 1, "-m", "unknown", "--cafile", broker.ca, kind="mtls", fails=True)


def test_properties(broker: Broker) -> None:
    topic = broker.name("m-properties")
    properties = {
        "content-type": "text/plain",
        "response-topic": "answer/here",
        "correlation-data": "sheep",
        "message-expiry-interval": "100",
        "payload-format-indicator": "1",
    }
    options = [word for name, value in properties.items() for word in ("-D", "publish", name, value)]
    options += ["-D", "publish", "user-property", "colour", "blue"]
    told = ("-D", "subscribe", "subscription-identifier", 7, "-F", "> %C|%R|%D|%E|%F|%P|%S|%p")
    with subscriber(broker, "mqttv5", "-t", topic, "-q", 1, *told) as sub:
        publish(broker, "mqttv5", "-t", topic, "-q", 1, "-m", "hello", *options)
        content, answer, correlation, expiry, form, user, identifier, payload = sub.message().split("|")
        assert (content, answer, correlation, form) == ("text/plain", "answer/here", "sheep", "1")
        assert 95 <= int(expiry) <= 100
        assert (user, identifier, payload) == ("colour:blue", "7", "hello")


def test_session_expiry_and_will_delay(broker: Broker) -> None:
    topic = broker.name("m-delay")
    with subscriber(broker, "mqttv5", "-t", f"{topic}/#", "-q", 1) as watcher:
        will = ("--will-topic", f"{topic}/will", "--will-payload", "late", "-x", 600, "-c", "-i", broker.name("m-x"))
        delayed = ("-D", "will", "will-delay-interval", 1, "-D", "will", "user-property", "a", "b")
        with subscriber(broker, "mqttv5", "-t", f"{topic}/x", *will, *delayed) as dying:
            dying.kill()
        killed = time.monotonic()
        assert watcher.message() == f"{topic}/will 0 0 late"
        assert time.monotonic() - killed >= 0.8


def test_shared_subscription(broker: Broker) -> None:
    topic = broker.name("m-shared")
    share = ("-t", f"$share/group/{topic}", "-q", 1)
    with subscriber(broker, "mqttv5", *share) as one, subscriber(broker, "mqttv311", *share) as two:
        publish(broker, "mqttv5", "-t", topic, "-q", 1, "-l", stdin="\n".join(map(str, range(10))).encode())
        got = [member.message().rsplit(" ", 1)[1] for member in (one, two) for _ in range(5)]
        assert sorted(map(int, got)) == list(range(10))


@both
def test_request_and_response(broker: Broker, version: str) -> None:
    topic = broker.name("m-request")
    five = version == "mqttv5"
    responder = paho.Client(CallbackAPIVersion.VERSION2, client_id=broker.name("responder"), protocol=paho.MQTTv5)
    ready = threading.Event()

    def answer(client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        if five:
            properties.CorrelationData = message.properties.CorrelationData
        target = message.properties.ResponseTopic if five else f"{topic}/answer"
        client.publish(target, b"you said " + message.payload, 1, properties=properties)

    responder.on_message = answer
    responder.on_subscribe = lambda *_: ready.set()
    responder.connect(broker.host, broker.port("tcp"))
    responder.loop_start()
    try:
        responder.subscribe(topic, 1)
        assert ready.wait(PATIENCE)
        command = ["mosquitto_rr", "-h", broker.host, "-p", str(broker.port("tcp")), "-V", version, "-q", "1"]
        command += ["-t", topic, "-e", f"{topic}/answer", "-m", "hello", "-W", "10"]
        if five:
            command += ["-D", "publish", "correlation-data", "1234"]
        done = subprocess.run(command, capture_output=True, timeout=2 * PATIENCE)
        assert (done.returncode, done.stdout) == (0, b"you said hello\n"), done
    finally:
        responder.disconnect()
        responder.loop_stop()
