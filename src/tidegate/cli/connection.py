"""A connection to any MQTT broker for `pub` and `sub`: aiomqtt, made to tell why the broker said no.

aiomqtt throws the reason codes of PUBACK and DISCONNECT away, and paho-mqtt below it answers a negative
PUBREC as if it were a positive one; `_Client` keeps them. Every failure leaves here as `Refused` or
`Unreachable`, with a text for people.
"""

from __future__ import annotations

import asyncio
import copy
import ssl
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiomqtt
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.cli import terminal
from tidegate.cli.properties import empty
from tidegate.cli.target import Target, Will
from tidegate.cli.tokens import Holder, load_key, load_token, subject_of
from tidegate.errors import TidegateError
from tidegate.policy.capability import METHOD, PROPERTY
from tidegate.policy.capability.proof import PROOF, READ, WRITE, filters_of
from tidegate.wire import encode_varint

if TYPE_CHECKING:
    from paho.mqtt.client import Client as PahoClient
    from paho.mqtt.client import ConnectFlags, DisconnectFlags

T = TypeVar("T")

_CONTINUE: Final = 0x18

_HINTS: Final = {
    0x81: "the broker could not read the packet",
    0x87: "no rule allows it, or a rule denies it",
    0x8A: "this client is banned",
    0x8E: "another client connected with the same identifier",
    0x93: "too many messages at once",
    0x95: "the message is larger than the broker accepts",
    0x97: "a limit or the disk of the broker is full",
    0x9A: "the broker does not keep messages",
    0x9B: "the broker does not offer this QoS",
}


class Refused(TidegateError):
    """The broker said no: what it refused, its reason code, and its own words or ours."""

    def __init__(self, what: str, reason: ReasonCode | None, said: str = "") -> None:
        code = reason.value if reason is not None else 0x80
        because = f": {reason.getName()} (0x{code:02x})" if reason is not None else ""
        about = said or _HINTS.get(code, "")
        super().__init__(what + because + (f"; {about}" if about else ""))


class Unreachable(TidegateError):
    """There is no broker there, it does not answer, or the connection broke."""


class _Client(aiomqtt.Client):
    """Remembers the reason codes that aiomqtt forgets."""

    def __init__(self, *args: Any, holder: Holder | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.holder = holder
        self.answers: dict[int, tuple[ReasonCode, Properties | None]] = {}
        self.lost: asyncio.Future[Exception] = self._loop.create_future()
        self.connack: Properties | None = None
        self.suback: Properties | None = None
        self._pubrec = self._client._handle_pubrec
        self._client._handle_pubrec = self._negative_pubrec  # type: ignore[method-assign]
        self._handle = self._client._packet_handle
        self._client._packet_handle = self._challenged  # type: ignore[method-assign]

    def _challenged(self) -> MQTTErrorCode:
        """paho knows no AUTH: the challenge of the node is answered here."""
        received = self._client._in_packet
        if self.holder is None or received["command"] & 0xF0 != PacketTypes.AUTH << 4:
            return self._handle()
        about = empty(PacketTypes.AUTH)
        about.unpack(bytes(received["packet"])[1:])  # type: ignore[no-untyped-call]
        answer = empty(PacketTypes.AUTH)
        answer.AuthenticationMethod = METHOD
        challenge = bytes(getattr(about, "AuthenticationData", b""))
        answer.AuthenticationData = self.holder.response(self._client._client_id.decode(), challenge)
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
        if not self.lost.done():
            said_so = flags.is_disconnect_packet_from_server
            self.lost.set_result(
                Refused("the broker closed the connection", reason_code, _said(properties))
                if said_so
                else Unreachable("the broker closed the connection without a word")
            )
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_subscribe(
        self,
        client: PahoClient,
        userdata: Any,
        mid: int,
        reason_codes: list[ReasonCode],
        properties: Properties | None = None,
    ) -> None:
        self.suback = properties
        super()._on_subscribe(client, userdata, mid, reason_codes, properties)

    def _on_publish(
        self, client: PahoClient, userdata: Any, mid: int, reason_code: ReasonCode, properties: Properties
    ) -> None:
        self.answers[mid] = (reason_code, properties)
        super()._on_publish(client, userdata, mid, reason_code, properties)


class Connection:
    """An open connection; made by `connect`."""

    def __init__(self, client: _Client, target: Target) -> None:
        self._client = client
        self._target = target

    async def publish(
        self, topic: str, payload: bytes | None, *, qos: int, retain: bool, properties: Properties | None
    ) -> ReasonCode | None:
        """Publish and wait for the answer that the QoS promises; the reason code, where there is one."""
        self._client.answers.clear()
        properties = self._proven(properties, PacketTypes.PUBLISH, WRITE, topic, payload or b"")
        sending = self._client.publish(topic, payload, qos=qos, retain=retain, properties=properties)
        await self._or_lost(sending)
        if qos == 0 or not self._client.answers:
            return None
        reason, about = next(iter(self._client.answers.values()))
        if reason.is_failure:
            raise Refused(f"the publish to `{topic}` was refused", reason, _said(about))
        return reason

    async def subscribe(
        self, filters: Sequence[str], *, options: SubscribeOptions, properties: Properties | None
    ) -> list[str]:
        """Subscribe to all filters at once; a refusal of any of them is a refusal. The filters that are held."""
        wanted: Any = [(each, options if self._target.v5 else options.QoS) for each in filters]
        properties = self._proven(properties, PacketTypes.SUBSCRIBE, READ, filters_of(filters))
        answers = await self._or_lost(self._client.subscribe(wanted, properties=properties))
        for each, answer in zip(filters, answers, strict=False):
            if isinstance(answer, ReasonCode) and answer.is_failure:
                raise Refused(f"the subscription to `{each}` was refused", answer, _said(self._client.suback))
        told = getattr(self._client.suback, "UserProperty", None) or ()
        return [value for name, value in told if name == "held"]

    def _proven(
        self, properties: Properties | None, kind: int, action: str, topic: str, payload: bytes = b""
    ) -> Properties | None:
        """With a proof, if there is a key to prove with."""
        holder = self._client.holder
        if holder is None:
            return properties
        proven = empty(kind) if properties is None else copy.deepcopy(properties)
        proven.UserProperty = (PROOF, holder.proof(action, topic, payload))
        return proven

    async def messages(self) -> AsyncIterator[aiomqtt.Message]:
        """Messages as they arrive, until the connection ends."""
        while True:
            yield await self._or_lost(self._client.messages.__anext__())

    async def _or_lost(self, work: Coroutine[Any, Any, T]) -> T:
        # aiomqtt waits for an answer even after the connection is gone, and then only says "timed out".
        task = asyncio.ensure_future(work)
        try:
            ends: set[asyncio.Future[Any]] = {task, self._client.lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._client.lost.done() and (not task.done() or task.exception() is not None):
                raise self._client.lost.result()
            return task.result()
        except aiomqtt.MqttError as broken:
            raise Unreachable(f"no answer from the broker: {broken}") from None
        finally:
            task.cancel()


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    """A connection for the length of a `with`; the broker is told at its end."""
    host, port = target.place
    client = _client(target, host, port)
    try:
        await client.__aenter__()
    except aiomqtt.MqttCodeError as refused:
        reason = refused.rc if isinstance(refused.rc, ReasonCode) else None
        said = _said(client.connack)
        if not said and reason is not None and reason.value in (0x86, 0x87):
            said = "check --user and --password, --cert and --key, or --capability and --proof-key"
        raise Refused(f"{host}:{port} refused the connection", reason, said) from None
    except aiomqtt.MqttError as broken:
        text = str(broken)
        why = "it does not answer" if "timed out" in text else text.partition("] ")[2] or text
        raise Unreachable(f"cannot connect to {host}:{port}: {why}") from None
    try:
        yield Connection(client, target)
    finally:
        if not client.lost.done():
            await client.__aexit__(None, None, None)
        elif client._disconnected.done():
            client._disconnected.exception()  # already reported; asyncio complains about unread ones


def _client(target: Target, host: str, port: int) -> _Client:
    properties = empty(PacketTypes.CONNECT)
    if target.session_expiry is not None:
        properties.SessionExpiryInterval = target.session_expiry
    user, password, holder = target.user, target.password, None
    if target.capability is not None:
        token = load_token(target.capability)
        if target.proof_key is not None:
            holder = Holder(token, load_key(target.proof_key))
            properties.AuthenticationMethod = METHOD
            properties.AuthenticationData = token.encode()
        elif target.v5:
            properties.UserProperty = (PROPERTY, token)
        else:
            user, password = user or subject_of(token), token
    return _Client(
        host,
        port,
        holder=holder,
        username=user if user is not None else "" if password is not None else None,
        password=password,
        identifier=target.identifier,
        protocol=aiomqtt.ProtocolVersion.V5 if target.v5 else aiomqtt.ProtocolVersion.V311,
        clean_session=None if target.v5 else target.clean,
        clean_start=target.clean if target.v5 else MQTT_CLEAN_START_FIRST_ONLY,
        properties=properties if target.v5 and not properties.isEmpty() else None,  # type: ignore[no-untyped-call]
        will=_will(target.will, holder),
        transport="websockets" if target.ws is not None else "tcp",
        websocket_path=target.ws or None,
        timeout=target.timeout,
        keepalive=target.keepalive,
        tls_context=_tls(target) if target.encrypted else None,
    )


def _will(will: Will | None, holder: Holder | None) -> aiomqtt.Will | None:
    if will is None:
        return None
    properties = empty(PacketTypes.WILLMESSAGE)
    payload = will.payload.encode()
    if will.delay is not None:
        properties.WillDelayInterval = will.delay
    if holder is not None:
        properties.UserProperty = (PROOF, holder.proof(WRITE, will.topic, payload))
    about = None if properties.isEmpty() else properties  # type: ignore[no-untyped-call]
    return aiomqtt.Will(will.topic, payload, will.qos, will.retain, about)


def _tls(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(target.cafile) if target.cafile else None)
        if target.cert is not None:
            context.load_cert_chain(target.cert, target.key)
    except (ssl.SSLError, OSError) as broken:
        raise Unreachable(f"the certificate files cannot be used: {broken}") from None
    if target.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _said(properties: Properties | None) -> str:
    """What the broker explains, on one line."""
    return " ".join(str(getattr(properties, "ReasonString", "")).split())


def run(work: Coroutine[Any, Any, None], *, interrupt_is_fine: bool = False) -> None:
    """Run to the end; failures end the command with exit code 1, and so does Ctrl-C where it is not the way out."""
    try:
        asyncio.run(work)
    except (Refused, Unreachable) as failed:
        terminal.fail(str(failed))
    except KeyboardInterrupt:
        if not interrupt_is_fine:
            terminal.fail("interrupted")
