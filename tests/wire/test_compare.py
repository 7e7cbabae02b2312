"""The same packets through two foreign libraries, in both directions.

`mqtt5` knows every packet of MQTT 5; `paho-mqtt` builds what a client sends and reads what a server sends, in
3.1.1 and 5. Where they differ from the specification, or from us within it, the case is listed with the reason.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, assert_never

import mqtt5
import paho.mqtt._packet as paho_packet
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.wire import (
    NONE,
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Type,
    Unsuback,
    Unsubscribe,
    Will,
    decode,
    encode,
    encode_properties,
    frame,
)
from tidegate.wire.properties import ALLOWED, PROPERTIES, WILL
from tidegate.wire.reasons import REASONS
from wire.cases import CASES, Case


def decoded(data: bytes, version: int) -> Packet:
    found = frame(data, 0, 1 << 20)
    assert found is not None
    first, start, end = found
    assert end == len(data)
    return decode(first, data[start:end], version)


# mqtt5

# How mqtt5 calls a property, where it is not by our name
RENAMED = {
    "subscription_identifiers": "subscription_ids",
    "assigned_client_identifier": "assigned_client_id",
    "request_problem_information": "request_problem_info",
    "request_response_information": "request_response_info",
    "response_information": "response_info",
    "reason_string": "reason_str",
    "receive_maximum": "receive_max",
    "topic_alias_maximum": "topic_alias_max",
    "maximum_qos": "max_qos",
    "maximum_packet_size": "max_packet_size",
    "subscription_identifier_available": "subscription_id_available",
}
# mqtt5 leaves a property out when it says what its absence says too; by our name, in which packets
DEFAULTS: dict[str, tuple[object, tuple[type, ...]]] = {
    "payload_format_indicator": (0, (Publish, Will)),
    "session_expiry_interval": (0, (Connect,)),
    "request_problem_information": (1, (Connect,)),
    "request_response_information": (0, (Connect,)),
    "receive_maximum": (65535, (Connect, Connack)),
    "topic_alias_maximum": (0, (Connect, Connack)),
    "will_delay_interval": (0, (Will,)),
    "retain_available": (1, (Connack,)),
    "wildcard_subscription_available": (1, (Connack,)),
    "subscription_identifier_available": (1, (Connack,)),
    "shared_subscription_available": (1, (Connack,)),
}
FLAGS = {name for name in RENAMED.values() if name.startswith("request_")} | {
    *("retain_available", "wildcard_subscription_available"),
    *("subscription_id_available", "shared_subscription_available"),
}
MQTT5_APART = {
    "5.0 DISCONNECT 0x8c": "not in the table of 3.14.2.1, but in that of 2.4",
    "5.0 AUTH": "mqtt5 has no empty form (3.15.2.1)",
}
MQTT5_CASES = [case for case in CASES if case.version == V5 and case.name not in MQTT5_APART]
each_mqtt5 = pytest.mark.parametrize("case", MQTT5_CASES, ids=lambda case: case.name)


def values(properties: Properties) -> dict[str, Any]:
    """The properties that are present, under the names and types of mqtt5."""
    out: dict[str, Any] = {}
    for field in fields(Properties):
        value = getattr(properties, field.name)
        if value is None or value == ():
            continue
        name = RENAMED.get(field.name, field.name)
        if isinstance(value, tuple):
            value = list(value)
        elif name in FLAGS:
            value = bool(value)
        elif name == "max_qos":
            value = mqtt5.QoS(value)
        out[name] = value
    return out


def will_of(will: Will) -> mqtt5.Will:
    return mqtt5.Will(
        will.topic, payload=will.payload, qos=mqtt5.QoS(will.qos), retain=will.retain, **values(will.properties)
    )


def foreign(packet: Packet) -> mqtt5.Packet:
    """Our packet as one of mqtt5."""
    match packet:
        case Connect():
            return mqtt5.ConnectPacket(
                packet.client_id,
                username=packet.username,
                password=packet.password,
                clean_start=packet.clean_start,
                will=None if packet.will is None else will_of(packet.will),
                keep_alive=packet.keep_alive,
                **values(packet.properties),
            )
        case Connack():
            return mqtt5.ConnAckPacket(
                session_present=packet.session_present,
                reason_code=mqtt5.ConnAckReasonCode(packet.reason),
                **values(packet.properties),
            )
        case Publish():
            return mqtt5.PublishPacket(
                packet.topic,
                packet.payload,
                qos=mqtt5.QoS(packet.qos),
                retain=packet.retain,
                packet_id=packet.packet_id or None,
                duplicate=packet.dup,
                **values(packet.properties),
            )
        case Puback() | Pubrec() | Pubrel() | Pubcomp():
            kind, reason = {
                Puback: (mqtt5.PubAckPacket, mqtt5.PubAckReasonCode),
                Pubrec: (mqtt5.PubRecPacket, mqtt5.PubRecReasonCode),
                Pubrel: (mqtt5.PubRelPacket, mqtt5.PubRelReasonCode),
                Pubcomp: (mqtt5.PubCompPacket, mqtt5.PubCompReasonCode),
            }[type(packet)]
            return kind(packet.packet_id, reason_code=reason(packet.reason), **values(packet.properties))
        case Subscribe():
            others = values(packet.properties)
            ids = others.pop("subscription_ids", [None])
            filters = [
                mqtt5.TopicFilter(
                    one.filter,
                    max_qos=mqtt5.QoS(one.qos),
                    no_local=one.no_local,
                    retain_as_published=one.retain_as_published,
                    retain_handling=mqtt5.RetainHandling(one.retain_handling),
                )
                for one in packet.subscriptions
            ]
            return mqtt5.SubscribePacket(packet.packet_id, filters, subscription_id=ids[0], **others)
        case Suback():
            reasons = [mqtt5.SubAckReasonCode(reason) for reason in packet.reasons]
            return mqtt5.SubAckPacket(packet.packet_id, reasons, **values(packet.properties))
        case Unsubscribe():
            return mqtt5.UnsubscribePacket(packet.packet_id, list(packet.filters), **values(packet.properties))
        case Unsuback():
            left = [mqtt5.UnsubAckReasonCode(reason) for reason in packet.reasons]
            return mqtt5.UnsubAckPacket(packet.packet_id, left, **values(packet.properties))
        case Pingreq():
            return mqtt5.PingReqPacket()
        case Pingresp():
            return mqtt5.PingRespPacket()
        case Disconnect():
            return mqtt5.DisconnectPacket(
                reason_code=mqtt5.DisconnectReasonCode(packet.reason), **values(packet.properties)
            )
        case Auth():
            return mqtt5.AuthPacket(reason_code=mqtt5.AuthReasonCode(packet.reason), **values(packet.properties))
        case _:
            assert_never(packet)


def without_defaults(properties: Properties, owner: type) -> Properties:
    drop = {
        name: None
        for name, (value, owners) in DEFAULTS.items()
        if owner in owners and getattr(properties, name) == value
    }
    return replace(properties, **drop)


def plain(packet: Packet) -> Packet:
    """The packet without properties that say what their absence says."""
    if isinstance(packet, Pingreq | Pingresp):
        return packet
    packet = replace(packet, properties=without_defaults(packet.properties, type(packet)))
    if isinstance(packet, Connect) and packet.will is not None:
        packet = replace(packet, will=replace(packet.will, properties=without_defaults(packet.will.properties, Will)))
    return packet


@each_mqtt5
def test_mqtt5_reads_what_we_write(case: Case) -> None:
    data = encode(case.packet, V5)
    theirs, size = mqtt5.read(memoryview(data))
    assert size == len(data)
    assert theirs == foreign(case.packet)
    assert repr(theirs) == repr(foreign(case.packet))


@each_mqtt5
def test_we_read_what_mqtt5_writes(case: Case) -> None:
    assert decoded(foreign(case.packet).write(), V5) == plain(case.packet)


@each_mqtt5
def test_mqtt5_writes_what_we_write(case: Case) -> None:
    ours, theirs = encode(plain(case.packet), V5), foreign(case.packet).write()
    properties = getattr(case.packet, "properties", NONE)
    if properties.user_properties and (
        properties.maximum_packet_size is not None or properties.shared_subscription_available is not None
    ):
        # mqtt5 puts user properties last, we put them in the order of identifiers
        assert sorted(ours) == sorted(theirs)
    else:
        assert ours.hex(" ") == theirs.hex(" ")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in MQTT5_APART], ids=lambda case: case.name)
def test_mqtt5_is_still_apart(case: Case) -> None:
    """So that nobody keeps an exclusion that is no longer needed."""
    try:
        agreed = mqtt5.read(memoryview(case.frame))[0] == foreign(case.packet)
        written = foreign(case.packet).write()
    except (ValueError, IndexError):
        return
    assert not (agreed and written == case.frame)


# paho-mqtt: tables


def test_paho_has_the_same_properties() -> None:
    table = PahoProperties(PacketTypes.PUBLISH).properties
    assert {row.id for row in PROPERTIES} == set(table)
    for kind in Type:
        assert ALLOWED[kind] == {id for id, (_, packets) in table.items() if kind in packets}
    assert {id for id, (_, packets) in table.items() if PacketTypes.WILLMESSAGE in packets} == WILL


@pytest.mark.parametrize("kind", REASONS, ids=lambda kind: kind.name)
def test_paho_has_the_same_reasons(kind: Type) -> None:
    known = set()
    for code in range(256):
        try:
            ReasonCode(kind, identifier=code)
        except (KeyError, ValueError):
            continue
        known.add(code)
    # 3.2.2.2 has 0x99 for a will payload that does not fit its format; paho has not
    assert known == REASONS[kind] - ({0x99} if kind is Type.CONNACK else set())


# paho-mqtt: properties

NAMES = {id: name.replace(" ", "") for name, id in PahoProperties(PacketTypes.PUBLISH).names.items()}


def paho_properties(properties: Properties, kind: int) -> PahoProperties:
    theirs = PahoProperties(kind)
    for row in PROPERTIES:
        value = getattr(properties, row.name)
        if value is None or value == ():
            continue
        # the setter refuses a MaximumPacketSize over 268,435,455, which 3.1.2.11.4 does not
        object.__setattr__(theirs, NAMES[row.id], list(value) if isinstance(value, tuple) else value)
    return theirs


def same_properties(ours: Properties, theirs: PahoProperties | None) -> bool:
    return {
        row.name: getattr(theirs, NAMES[row.id], () if row.name.endswith(("properties", "identifiers")) else None)
        for row in PROPERTIES
    } == {
        row.name: list(value) if isinstance(value := getattr(ours, row.name), tuple) and value else value
        for row in PROPERTIES
    }


ALL_PROPERTIES = [
    pytest.param(int(case.first >> 4), properties, id=case.name)
    for case in CASES
    if case.version == V5 and (properties := getattr(case.packet, "properties", NONE)) != NONE
] + [
    pytest.param(PacketTypes.WILLMESSAGE, case.packet.will.properties, id=f"{case.name}: will")
    for case in CASES
    if isinstance(case.packet, Connect) and case.packet.will and case.packet.will.properties != NONE
]


@pytest.mark.parametrize(("kind", "properties"), ALL_PROPERTIES)
def test_paho_properties(kind: int, properties: Properties) -> None:
    packed = encode_properties(properties, will=kind == PacketTypes.WILLMESSAGE)
    assert bytes(paho_properties(properties, kind).pack()).hex(" ") == packed.hex(" ")
    theirs = PahoProperties(kind)
    if properties.maximum_packet_size is None or properties.maximum_packet_size <= 268_435_455:
        theirs.unpack(packed)
        assert same_properties(properties, theirs)


# paho-mqtt: what a client sends


class Recorder(Client):
    """A client that keeps its packets instead of sending them."""

    def __init__(self, version: int, **options: Any) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion(version), **options)
        self.sent: list[bytes] = []
        self.identifier = 0

    def _packet_queue(self, command: int, packet: bytes, mid: int, qos: int, info: Any = None) -> Any:
        self.sent.append(bytes(packet))
        return 0

    def _mid_generate(self) -> int:
        return self.identifier


def sent_by_paho(packet: Packet, version: int) -> bytes | None:
    """The packet as paho builds it; None for what a client does not send or paho cannot say."""
    v5 = version == V5
    client = Recorder(version, client_id="x")
    client._sock = object()  # type: ignore[assignment]  # _send_publish asks whether there is one
    properties = getattr(packet, "properties", NONE)
    theirs = paho_properties(properties, Type[type(packet).__name__.upper()]) if properties != NONE else None
    try:
        match packet:
            case Connect():
                if packet.password is not None and packet.username is None:
                    return None
                client._client_id = packet.client_id.encode()
                client._clean_session = packet.clean_start
                client._clean_start = packet.clean_start
                client._connect_properties = theirs
                client._username = None if packet.username is None else packet.username.encode()
                client._password = packet.password
                if packet.will is not None:
                    will = packet.will
                    client._will = True
                    client._will_topic = will.topic.encode()
                    client._will_payload = will.payload
                    client._will_qos = will.qos
                    client._will_retain = will.retain
                    if will.properties != NONE:
                        client._will_properties = paho_properties(will.properties, PacketTypes.WILLMESSAGE)
                client._send_connect(packet.keep_alive)
            case Publish():
                client._send_publish(
                    packet.packet_id,
                    packet.topic.encode(),
                    packet.payload,
                    packet.qos,
                    packet.retain,
                    packet.dup,
                    properties=theirs,
                )
            case Puback() | Pubrec() | Pubrel() | Pubcomp():
                if packet.reason or properties != NONE:
                    return None
                send = {
                    Puback: client._send_puback,
                    Pubrec: client._send_pubrec,
                    Pubrel: client._send_pubrel,
                    Pubcomp: client._send_pubcomp,
                }[type(packet)]
                send(packet.packet_id)
            case Subscribe():
                client.identifier = packet.packet_id
                topics = [
                    (
                        one.filter.encode(),
                        SubscribeOptions(one.qos, one.no_local, one.retain_as_published, one.retain_handling)
                        if v5
                        else one.qos,
                    )
                    for one in packet.subscriptions
                ]
                client._send_subscribe(False, topics, theirs)
            case Unsubscribe():
                client.identifier = packet.packet_id
                client._send_unsubscribe(False, [one.encode() for one in packet.filters], theirs)
            case Pingreq():
                client._send_pingreq()
            case Pingresp():
                client._send_pingresp()
            case Disconnect():
                reason = ReasonCode(PacketTypes.DISCONNECT, identifier=packet.reason)
                client._send_disconnect(reason if packet.reason or theirs else None, theirs)
            case Connack() | Suback() | Unsuback() | Auth():
                return None
            case _:
                assert_never(packet)
    finally:
        client._sock = None
    (data,) = client.sent
    return data


@pytest.mark.parametrize("case", [case for case in CASES if case.canonical], ids=lambda case: case.name)
def test_paho_sends_what_we_send(case: Case) -> None:
    theirs = sent_by_paho(case.packet, case.version)
    if theirs is None:
        return
    assert theirs.hex(" ") == encode(case.packet, case.version).hex(" ")
    assert decoded(theirs, case.version) == case.packet


def test_paho_was_asked() -> None:
    """That the comparison above compares something for each packet that a client sends."""
    for version in (V311, V5):
        asked = {
            type(case.packet)
            for case in CASES
            if case.version == version and sent_by_paho(case.packet, version) is not None
        }
        assert asked == {
            *(Connect, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe),
            *(Pingreq, Pingresp, Disconnect),
        }


# paho-mqtt: what a server sends

READ = {
    Connack: paho_packet.decode_connack,
    Publish: paho_packet.decode_publish,
    Puback: paho_packet.decode_puback,
    Pubrec: paho_packet.decode_pubrec,
    Pubrel: paho_packet.decode_pubrel,
    Pubcomp: paho_packet.decode_pubcomp,
    Suback: paho_packet.decode_suback,
    Unsuback: paho_packet.decode_unsuback,
    Disconnect: paho_packet.decode_disconnect,
}
PAHO_APART = {
    "5.0 CONNACK 0x99": "paho does not know it, see above",
    "5.0 CONNACK with everything": "paho takes no MaximumPacketSize over 268,435,455",
    "3.1.1 DISCONNECT": "a server does not send it",
}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if type(case.packet) in READ and case.name not in PAHO_APART],
    ids=lambda case: case.name,
)
def test_paho_reads_what_we_write(case: Case) -> None:
    packet = case.packet
    data = encode(packet, case.version)
    found = frame(data, 0, 1 << 20)
    assert found is not None
    first, start, end = found
    theirs: Any = READ[type(packet)](first, data[start:end], MQTTProtocolVersion(case.version))
    match packet:
        case Connack():
            assert theirs.flags == packet.session_present
            assert theirs.rc == packet.reason
        case Publish():
            assert (theirs.topic.decode(), theirs.payload) == (packet.topic, packet.payload)
            assert (theirs.qos, theirs.retain, theirs.dup) == (packet.qos, packet.retain, packet.dup)
            assert theirs.mid == packet.packet_id
        case Puback() | Pubrec() | Pubrel() | Pubcomp():
            assert (theirs.mid, theirs.reason.value) == (packet.packet_id, packet.reason)
        case Suback() | Unsuback():
            assert theirs.mid == packet.packet_id
            assert tuple(code.value for code in theirs.reason_codes) == packet.reasons
        case Disconnect():
            assert (theirs.reason.value if theirs.reason else 0) == packet.reason
        case _:
            raise AssertionError(packet)
    assert same_properties(packet.properties, theirs.properties)
