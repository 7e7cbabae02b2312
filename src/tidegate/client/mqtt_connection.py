"""A connection to any MQTT broker: aiomqtt, made to tell why the broker said no.

aiomqtt drops the reason codes of PUBACK and DISCONNECT. paho-mqtt, which it uses, answers a negative PUBREC like a
positive one and does not support AUTH. `MqttConnection` corrects both. Every failure is raised as `Refused` or
`Unreachable`, with a text for people.

Everything runs on the event loop on which the object was created. Each object is used for one connection.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiomqtt
from paho.mqtt.client import MQTT_ERR_SUCCESS, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.client.capability_holder import CapabilityHolder
from tidegate.client.exceptions import Refused, Unreachable, reason_string
from tidegate.errors import TidegateError
from tidegate.policy.capability import METHOD
from tidegate.policy.capability.proof import PROOF, READ, WRITE, Asked, filters_of
from tidegate.wire import encode_varint

if TYPE_CHECKING:
    from paho.mqtt.client import Client as PahoClient
    from paho.mqtt.client import ConnectFlags, DisconnectFlags

T = TypeVar("T")
Answer = tuple[list[ReasonCode], Properties | None]

_CONTINUE: Final = 0x18


def empty(packet_type: int) -> Properties:
    return Properties(packet_type)  # type: ignore[no-untyped-call]


def proven(
    holder: CapabilityHolder | None,
    properties: Properties | None,
    kind: int,
    action: str,
    topic: str,
    payload: bytes = b"",
    *,
    qos: tuple[int, ...] = (),
    retain: bool | None = None,
) -> Properties | None:
    """The properties of a packet with a proof, if there is a key to prove with."""
    if holder is None:
        return properties
    with_proof = empty(kind) if properties is None else copy.deepcopy(properties)
    asked = Asked(
        qos=qos,
        retain=retain,
        expiry=getattr(with_proof, "MessageExpiryInterval", None),
        properties=tuple(getattr(with_proof, "UserProperty", ())),
    )
    with_proof.UserProperty = (PROOF, holder.proof(action, topic, payload, asked))
    return with_proof


class MqttConnection(aiomqtt.Client):
    """One connection; `take` is called with each message as it arrives, `ended` once when it is over."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        take: Callable[[aiomqtt.Message], None],
        ended: Callable[[TidegateError], None],
        holder: CapabilityHolder | None = None,
        **options: Any,
    ) -> None:
        super().__init__(host, port, **options)
        self.lost: asyncio.Future[TidegateError] = self._loop.create_future()
        self.connack: Properties | None = None
        self.closing = False  # by this side
        self._opening = False
        self._place = f"{host}:{port}"
        self._holder = holder
        self._take = take
        self._ended = ended
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._pubrec = self._client._handle_pubrec
        self._client._handle_pubrec = self._negative_pubrec  # type: ignore[method-assign]
        self._handle = self._client._packet_handle
        self._client._packet_handle = self._challenged  # type: ignore[method-assign]

    async def open(self) -> None:
        """Connects. Refused or Unreachable if that cannot be done."""
        self._opening = True
        try:
            await self.__aenter__()
        except aiomqtt.MqttCodeError as refused:
            self._client.disconnect()
            reason = refused.rc if isinstance(refused.rc, ReasonCode) else None
            raise Refused(f"{self._place} refused the connection", reason, reason_string(self.connack)) from None
        except aiomqtt.MqttError as broken:
            self._client.disconnect()  # whoever does not answer may still have accepted
            text = str(broken)
            why = "it does not answer" if "timed out" in text else text.partition("] ")[2] or text
            raise Unreachable(f"cannot connect to {self._place}: {why}") from None
        finally:
            self._opening = False
        self._disconnected.add_done_callback(self._over)

    async def answered(self) -> None:
        """Until nothing is open of what was sent, or the broker takes too long."""
        ends = tuple(self._answers.values())
        if ends and not self.lost.done():
            await asyncio.wait(ends, timeout=self.timeout)

    async def close(self) -> None:
        if self.lost.done():
            return
        self.closing = True
        self._end(Unreachable("the connection was closed here"))
        try:
            await self.__aexit__(None, None, None)
        except aiomqtt.MqttError:
            return  # it went away while we took leave: it is closed either way

    async def send(
        self, topic: str, payload: bytes | None, *, qos: int, retain: bool, properties: Properties | None
    ) -> ReasonCode | None:
        """Publishes and waits for the answer that the QoS promises; the reason code, where there is one."""
        self._here()
        properties = proven(
            self._holder, properties, PacketTypes.PUBLISH, WRITE, topic, payload or b"", qos=(qos,), retain=retain
        )
        info = self._client.publish(topic, payload, qos, retain, properties)
        if info.rc == MQTT_ERR_SUCCESS and info.is_published():
            return None  # QoS 0, and written
        codes, about = await self._answer(info.rc, info.mid, what=f"`{topic}` was not published")
        if qos == 0 or not codes:
            return None
        if codes[0].is_failure:
            raise Refused(f"the publish to `{topic}` was refused", codes[0], reason_string(about))
        return codes[0]

    async def listen(
        self, filters: Sequence[str], *, options: SubscribeOptions, properties: Properties | None
    ) -> list[str]:
        """Subscribes to all filters at once; a refusal of any of them is a refusal. The filters that are held."""
        self._here()
        v5 = self._client.protocol == MQTTProtocolVersion.MQTTv5
        wanted: Any = [(each, options if v5 else options.QoS) for each in filters]
        qos = (options.QoS,) * len(filters)
        properties = proven(self._holder, properties, PacketTypes.SUBSCRIBE, READ, filters_of(filters), qos=qos)
        sent = self._client.subscribe(wanted, properties=properties)
        codes, about = await self._answer(*sent, what="not subscribed")
        for each, code in zip(filters, codes, strict=False):
            if code.is_failure:
                raise Refused(f"the subscription to `{each}` was refused", code, reason_string(about))
        user_properties = getattr(about, "UserProperty", None) or ()
        return [value for name, value in user_properties if name == "held"]

    async def leave(self, filter: str) -> None:
        self._here()
        codes, about = await self._answer(*self._client.unsubscribe(filter), what="not unsubscribed")
        for code in codes:
            if code.is_failure:
                raise Refused(f"`{filter}` was not unsubscribed", code, reason_string(about))

    def _here(self) -> None:
        if self.lost.done():
            raise self.lost.result()

    async def _answer(self, result: MQTTErrorCode, mid: int | None, *, what: str) -> Answer:
        """What the broker says to a packet, unless it was not sent or the connection ends first."""
        if result != MQTT_ERR_SUCCESS or mid is None:
            raise Unreachable(f"{what}: {aiomqtt.MqttCodeError(result)}")
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answers[mid] = answer
        try:
            ends: set[asyncio.Future[Any]] = {answer, self.lost}
            await asyncio.wait(ends, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if self.lost.done():
                raise self.lost.result()
            raise Unreachable("no answer from the broker: Operation timed out")
        finally:
            self._answers.pop(mid, None)

    def _answered(self, mid: int, codes: list[ReasonCode], properties: Properties | None) -> None:
        waiting = self._answers.get(mid)
        if waiting is not None and not waiting.done():
            waiting.set_result((codes, properties))

    def _end(self, why: TidegateError) -> None:
        if not self.lost.done():
            self.lost.set_result(why)
            self._ended(why)

    def _over(self, disconnected: asyncio.Future[None]) -> None:
        """aiomqtt noticed it, perhaps where paho-mqtt said nothing."""
        broken = None if disconnected.cancelled() else disconnected.exception()
        self._end(Unreachable(f"the connection broke: {broken}" if broken else "the connection is closed"))

    def _challenged(self) -> MQTTErrorCode:
        """The challenge of the node is answered here."""
        received = self._client._in_packet
        if self._holder is None or received["command"] & 0xF0 != PacketTypes.AUTH << 4:
            return self._handle()
        about = empty(PacketTypes.AUTH)
        about.unpack(bytes(received["packet"])[1:])  # type: ignore[no-untyped-call]
        answer = empty(PacketTypes.AUTH)
        answer.AuthenticationMethod = METHOD
        challenge = bytes(getattr(about, "AuthenticationData", b""))
        answer.AuthenticationData = self._holder.response(self.identifier, challenge)
        body = bytes((_CONTINUE,)) + answer.pack()  # type: ignore[no-untyped-call]
        packet = bytes((PacketTypes.AUTH << 4,)) + encode_varint(len(body)) + body
        return self._client._packet_queue(PacketTypes.AUTH << 4, packet, 0, 0)

    def _negative_pubrec(self) -> MQTTErrorCode:
        # [MQTT-4.3.3-4] a PUBREC with 0x80 or more ends the exchange; paho would go on with PUBREL.
        packet = bytes(self._client._in_packet["packet"])
        if len(packet) > 2 and packet[2] >= 0x80:
            reason = ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
            about = empty(PacketTypes.PUBREC)
            if len(packet) > 3:
                about.unpack(packet[3:])  # type: ignore[no-untyped-call]
            return self._client._do_on_publish(int.from_bytes(packet[:2], "big"), reason, about)
        return self._pubrec()

    def _on_message(self, client: PahoClient, userdata: Any, message: MQTTMessage) -> None:
        self._take(aiomqtt.Message._from_paho_message(message))

    def _on_connect(
        self,
        client: PahoClient,
        userdata: Any,
        flags: ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        self.connack = properties
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self,
        client: PahoClient,
        userdata: Any,
        flags: DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._end(Refused("the broker closed the connection", reason_code, reason_string(properties)))
        else:
            self._end(Unreachable("the broker closed the connection without a word"))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)
        self._loop.call_soon_threadsafe(self._hung_up)  # paho-mqtt may be on the thread on which it connects

    def _hung_up(self) -> None:
        """aiomqtt would wait for the CONNACK of a connection that is closed."""
        if self._opening and not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("it closed the connection before it answered"))

    def _on_subscribe(
        self,
        client: PahoClient,
        userdata: Any,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        self._answered(mid, reason_codes, properties)

    _on_unsubscribe = _on_subscribe

    def _on_publish(
        self, client: PahoClient, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self._answered(mid, [reason_code], properties)
