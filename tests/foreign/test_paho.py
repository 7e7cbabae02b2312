"""paho-mqtt, 3.1.1 and 5, over TCP, TLS and WebSocket."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from foreign.conftest import Broker
from harness import PATIENCE

VERSIONS = {"3.1.1": paho.MQTTv311, "5": paho.MQTTv5}
EVERY = [(version, transport) for version in VERSIONS for transport in ("tcp", "tls", "ws", "wss")]
SOME = [("3.1.1", "tcp"), ("5", "tls"), ("5", "ws")]


class Client:
    """paho with its callbacks turned into things to wait for."""

    def __init__(self, broker: Broker, version: str, transport: str, name: str, **options: Any) -> None:
        self.version = version
        self.five = version == "5"
        self._broker = broker
        self._transport = transport
        self._expiry = options.pop("expiry", 0)
        self._clean = options.pop("clean", True)
        self.messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.end_reason: Any = None
        web = transport in ("ws", "wss")
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=VERSIONS[version],
            transport="websockets" if web else "tcp",
            reconnect_on_failure=False,
            **({} if self.five else {"clean_session": self._clean}),
            **options,
        )
        if web:
            self.paho.ws_set_options(path="/mqtt")
        if transport in ("tls", "wss"):
            self.paho.tls_set(ca_certs=str(broker.ca))
        self.paho.on_connect = lambda client, data, flags, reason, properties: self.answers.put(
            ("connect", (flags, reason, properties))
        )
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_subscribe = lambda client, data, mid, reasons, properties: self.answers.put(("subscribe", reasons))
        self.paho.on_disconnect = self._ended

    def _ended(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.end_reason = reason
        self.ended.set()

    def answer(self, kind: str) -> Any:
        found, what = self.answers.get(timeout=PATIENCE)
        assert found == kind, (found, what)
        return what

    def connect(self, expect: int | str = "Success") -> Any:
        """Connected; the flags of CONNACK."""
        options: dict[str, Any] = {}
        if self.five:
            options["clean_start"] = self._clean
            if self._expiry:
                options["properties"] = Properties(PacketTypes.CONNECT)
                options["properties"].SessionExpiryInterval = self._expiry
        self.paho.connect(self._broker.host, self._broker.port(self._transport), keepalive=30, **options)
        self.paho.loop_start()
        flags, reason, self.connack = self.answer("connect")
        assert reason == expect, reason
        return flags

    def subscribe(self, filter: str, qos: int = 0) -> None:
        self.paho.subscribe(filter, qos)
        reasons = self.answer("subscribe")
        assert [reason.value for reason in reasons] == [qos]

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **options: Any) -> None:
        sent = self.paho.publish(topic, payload, qos, retain, **options)
        sent.wait_for_publish(PATIENCE)
        assert sent.is_published()

    def message(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=PATIENCE)

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def break_off(self) -> None:
        """The network ends without a DISCONNECT."""
        with socket.socket(fileno=os.dup(self.paho.socket().fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
        assert self.ended.wait(PATIENCE)
        self.paho.loop_stop()


class Make:
    """Makes clients of one version over one transport, and sees to their end."""

    def __init__(self, broker: Broker, version: str, transport: str) -> None:
        self._broker = broker
        self._kind = (version, transport)
        self.made: list[Client] = []

    def __call__(self, name: str = "", **options: Any) -> Client:
        client = Client(self._broker, *self._kind, name or self._broker.name("paho"), **options)
        self.made.append(client)
        return client

    def connected(self, name: str = "", **options: Any) -> Client:
        client = self(name, **options)
        client.connect()
        return client


@pytest.fixture
def make(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Make]:
    maker = Make(broker, *request.param)
    yield maker
    for client in maker.made:
        client.leave()


def over(kinds: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", kinds, indirect=True, ids=[" ".join(kind) for kind in kinds])


@over(EVERY)
def test_messages_at_every_qos(make: Make, broker: Broker) -> None:
    topic = broker.name("qos")
    client, other = make.connected(), make.connected()
    for qos in (0, 1, 2):
        client.subscribe(f"{topic}/{qos}/#", qos)
        for number in range(3):
            other.publish(f"{topic}/{qos}/{number}", b"%d" % number, qos)
        for number in range(3):
            message = client.message()
            assert (message.topic, message.payload) == (f"{topic}/{qos}/{number}", b"%d" % number)
            assert (message.qos, message.retain, message.dup) == (qos, False, False)
    client.paho.unsubscribe(f"{topic}/0/#")
    client.subscribe(f"{topic}/end")
    other.publish(f"{topic}/0/none", b"for nobody")
    other.publish(f"{topic}/end", b"")
    assert client.message().topic == f"{topic}/end"


@over(EVERY)
def test_retained(make: Make, broker: Broker) -> None:
    topic = broker.name("retained")
    client = make.connected()
    client.publish(f"{topic}/1", b"kept", 1, retain=True)
    client.publish(f"{topic}/2", b"kept, then not", 1, retain=True)
    client.publish(f"{topic}/2", b"", 1, retain=True)
    late = make.connected()
    late.subscribe(f"{topic}/+", 1)
    message = late.message()
    assert (message.topic, message.payload, message.qos, message.retain) == (f"{topic}/1", b"kept", 1, True)
    client.publish(f"{topic}/3", b"live", 1)
    message = late.message()
    assert (message.topic, message.retain) == (f"{topic}/3", False)
    client.publish(f"{topic}/1", b"", 1, retain=True)


@over(EVERY)
def test_will_when_the_connection_breaks(make: Make, broker: Broker) -> None:
    topic = broker.name("will")
    watcher = make.connected()
    watcher.subscribe(f"{topic}/#", 2)
    for client, name in ((make(), "polite"), (make(), "broken")):
        client.paho.will_set(f"{topic}/{name}", b"gone", qos=2)
        client.connect()
    polite, broken = make.made[1:]
    polite.leave()
    broken.break_off()
    message = watcher.message()
    assert (message.topic, message.payload, message.qos) == (f"{topic}/broken", b"gone", 2)
    watcher.publish(f"{topic}/end", b"")
    assert watcher.message().topic == f"{topic}/end"


@over(EVERY)
def test_persistent_session_gets_what_it_missed(make: Make, broker: Broker) -> None:
    topic, name = broker.name("queued"), broker.name("keeper")
    keeper = make(name, clean=False, expiry=600)
    assert not keeper.connect().session_present
    keeper.subscribe(f"{topic}/#", 2)
    keeper.break_off()
    other = make.connected()
    for number in range(30):
        other.publish(f"{topic}/same", b"%d" % number, qos=number % 2 + 1)
    again = make(name, clean=False, expiry=600)
    assert again.connect().session_present
    got = [again.message() for _ in range(30)]
    for qos in (1, 2):  # [MQTT-4.6.0-6] in order for the same topic and QoS
        assert [int(m.payload) for m in got if m.qos == qos] == list(range(qos - 1, 30, 2))
    again.leave()
    fresh = make(name)
    assert not fresh.connect().session_present


@over(EVERY)
def test_password(make: Make, broker: Broker) -> None:
    client = make()
    client.paho.username_pw_set(broker.user, broker.password)
    client.connect()
    topic = broker.name("password")
    client.subscribe(topic)
    client.publish(topic, b"in")
    assert client.message().payload == b"in"
    for user, password in ((broker.user, "wrong"), ("nobody", broker.password), (broker.user, None)):
        refused = make()
        refused.paho.username_pw_set(user, password)
        refused.connect(expect="Bad user name or password")
        assert refused.ended.wait(PATIENCE)


@over(EVERY)
def test_take_over(make: Make, broker: Broker) -> None:
    name, topic = broker.name("taken"), broker.name("take-over")
    first = make.connected(name)
    first.subscribe(topic)
    second = make.connected(name)
    assert first.ended.wait(PATIENCE)
    if first.five:
        assert first.end_reason == "Session taken over"
    second.subscribe(topic)
    second.publish(topic, b"to the second")
    assert second.message().payload == b"to the second"


@over(EVERY)
def test_large_payload(make: Make, broker: Broker) -> None:
    topic = broker.name("large")
    client = make.connected()
    client.subscribe(topic, 2)
    for qos in (0, 1, 2):
        payload = os.urandom(500_000)
        client.publish(topic, payload, qos)
        message = client.message()
        assert message.qos == qos
        assert message.payload == payload


@over(SOME)
def test_many_messages_none_lost_in_order(make: Make, broker: Broker) -> None:
    topic = broker.name("many")
    client, other = make.connected(), make.connected()
    client.subscribe(topic, 1)
    sent = [other.paho.publish(topic, b"%d" % number, 1) for number in range(2000)]
    got = [client.message().payload for _ in range(2000)]
    assert got == [b"%d" % number for number in range(2000)]
    for one in sent:
        one.wait_for_publish(PATIENCE)
        assert one.is_published()


@over([("5", "tcp"), ("5", "wss")])
def test_properties(make: Make, broker: Broker) -> None:
    topic = broker.name("properties")
    client = make.connected()
    told = Properties(PacketTypes.SUBSCRIBE)
    told.SubscriptionIdentifier = 7
    options = SubscribeOptions(qos=1, retainAsPublished=True)
    client.paho.subscribe(topic, options=options, properties=told)
    client.answer("subscribe")
    properties = Properties(PacketTypes.PUBLISH)
    properties.PayloadFormatIndicator = 1
    properties.ContentType = "text/plain"
    properties.ResponseTopic = f"{topic}/answer"
    properties.CorrelationData = b"\x00\x01"
    properties.MessageExpiryInterval = 100
    properties.UserProperty = [("a", "1"), ("a", "2"), ("b", "ü")]
    client.publish(topic, b"x", 1, retain=True, properties=properties)
    message = client.message()
    got = message.properties
    assert message.retain
    assert (got.PayloadFormatIndicator, got.ContentType, got.ResponseTopic) == (1, "text/plain", f"{topic}/answer")
    assert got.CorrelationData == b"\x00\x01"
    assert got.UserProperty == [("a", "1"), ("a", "2"), ("b", "ü")]
    assert 95 <= got.MessageExpiryInterval <= 100
    assert got.SubscriptionIdentifier == [7]
    client.publish(topic, b"", 1, retain=True)


@over([("5", "tcp")])
def test_no_local_and_shared_subscriptions(make: Make, broker: Broker) -> None:
    topic = broker.name("shared")
    client = make.connected()
    client.paho.subscribe(topic, options=SubscribeOptions(qos=1, noLocal=True))
    client.answer("subscribe")
    members = [make.connected(), make.connected()]
    for member in members:
        member.subscribe(f"$share/group/{topic}", 1)
    client.publish(topic, b"own", 1)
    for number in range(10):
        members[0].publish(topic, b"%d" % number, 1)
    assert [client.message().payload for _ in range(10)] == [b"%d" % number for number in range(10)]
    shared = [[member.message().payload for _ in range(5)] for member in members]
    assert sorted(shared[0] + shared[1] + [members[0].message().payload]) == sorted(
        [b"own"] + [b"%d" % number for number in range(10)]
    )


@over([("5", "tcp")])
def test_assigned_client_id(broker: Broker, make: Make) -> None:
    client = Client(broker, "5", "tcp", "")
    make.made.append(client)
    client.connect()
    assert client.connack.AssignedClientIdentifier


@pytest.mark.parametrize("version", VERSIONS)
def test_client_certificate(broker: Broker, version: str) -> None:
    cert, key = broker.certificate(broker.name("device"))
    client = Client(broker, version, "mtls", broker.name("mtls"))
    client.paho.tls_set(ca_certs=str(broker.ca), certfile=str(cert), keyfile=str(key))
    client.connect()
    topic = broker.name("mtls")
    client.subscribe(topic, 1)
    client.publish(topic, b"known by its certificate", 1)
    assert client.message().payload == b"known by its certificate"
    client.leave()
