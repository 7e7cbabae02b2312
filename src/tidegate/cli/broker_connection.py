"""A connection to any MQTT broker for `pub` and `sub`: the client of `tidegate.client`, and properties of MQTT 5.

Every failure leaves here as `Refused`, `Unreachable` or KeysError, with a text for people. MQTT 3.1.1 has no
properties; to ask for one there is an error and not a silent omission.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.cli import terminal
from tidegate.cli.connection_options import ConnectionOptions
from tidegate.cli.options import name_and_value
from tidegate.cli.tokens import load_key, load_token
from tidegate.client import V5, V311, Client, KeysError, Refused, Unreachable
from tidegate.client.mqtt_connection import empty
from tidegate.explain.as_json import text_or_base64

_SHOWN: Final = (
    ("content_type", "ContentType"),
    ("response_topic", "ResponseTopic"),
    ("correlation", "CorrelationData"),
    ("expiry", "MessageExpiryInterval"),
    ("payload_format", "PayloadFormatIndicator"),
    ("subscription", "SubscriptionIdentifier"),
)


@asynccontextmanager
async def connect(options: ConnectionOptions) -> AsyncIterator[Client]:
    """A connection for the length of a `with`; the broker is told at its end."""
    client = _client(options)
    try:
        await client.__aenter__()
    except Refused as refused:
        if refused.reason_string or refused.code not in (0x86, 0x87):
            raise
        advice = "check --user and --password, --cert and --key, or --capability and --proof-key"
        raise Refused(refused.what, refused.reason, advice) from None
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


def _client(options: ConnectionOptions) -> Client:
    host, port = options.place
    return Client(
        host,
        port=port,
        backups=options.backup or (),
        attempts=options.attempts,
        interval=options.interval,
        restore=options.restore,
        user=options.user,
        password=options.password,
        identifier=options.identifier,
        version=V5 if options.v5 else V311,
        tls=_tls(options) if options.encrypted else False,
        websocket=options.ws,
        capability=None if options.capability is None else load_token(options.capability),
        proof_key=None if options.proof_key is None else load_key(options.proof_key),
        private_key=options.private_key,
        reader=options.reader,
        keys=options.keys_url,
        token=options.token,
        patience=options.timeout,
        timeout=options.timeout,
        keepalive=options.keepalive,
        clean=options.clean,
        session_expiry=options.session_expiry,
        will=_will(options),
    )


def _will(options: ConnectionOptions) -> aiomqtt.Will | None:
    if options.will_topic is None:
        return None
    properties = None
    if options.will_delay is not None:
        properties = empty(PacketTypes.WILLMESSAGE)
        properties.WillDelayInterval = options.will_delay
    payload = options.will_message.encode()
    return aiomqtt.Will(options.will_topic, payload, options.will_qos, options.will_retain, properties)


def _tls(options: ConnectionOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(options.cafile) if options.cafile else None)
        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
    except (ssl.SSLError, OSError) as broken:
        raise Unreachable(f"the certificate files cannot be used: {broken}") from None
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def run(work: Coroutine[Any, Any, None], *, interrupt_is_fine: bool = False) -> None:
    """Run to the end; failures end the command with exit code 1, and so does Ctrl-C where it is not the way out."""
    try:
        asyncio.run(work)
    except (Refused, Unreachable, KeysError) as failed:
        terminal.fail(str(failed))
    except KeyboardInterrupt:
        if not interrupt_is_fine:
            terminal.fail("interrupted")


# -- properties of MQTT 5 ----------------------------------------------------------------------------------------------


def message_properties(
    options: ConnectionOptions,
    packet_type: int,
    pairs: Sequence[str] | None,
    *,
    instructions: Mapping[str, str | None],
    **fields: Any,
) -> Properties | None:
    """The properties of a PUBLISH or SUBSCRIBE, or None if there are none.

    `pairs` are user properties as NAME=VALUE, `instructions` those that the node obeys, `fields` what paho calls them.
    """
    properties = empty(packet_type)
    for pair in pairs or ():
        properties.UserProperty = name_and_value(pair, "a property")
    for instruction in instructions.items():
        if instruction[1] is not None:
            properties.UserProperty = instruction
    for name, value in fields.items():
        if value is not None:
            setattr(properties, name, value)
    if properties.isEmpty():  # type: ignore[no-untyped-call]
        return None
    if not options.v5:
        terminal.usage("properties (and --require, --view, --where) need MQTT 5; leave out --protocol 311")
    return properties


def subscribe_options(
    options: ConnectionOptions, *, qos: int, no_local: bool, no_retained: bool, retain_as_published: bool
) -> SubscribeOptions:
    if not options.v5 and (no_local or no_retained or retain_as_published):
        terminal.usage("--no-local, --no-retained and --retain-as-published need MQTT 5")
    handling = SubscribeOptions.RETAIN_DO_NOT_SEND if no_retained else SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
    return SubscribeOptions(qos=qos, noLocal=no_local, retainAsPublished=retain_as_published, retainHandling=handling)


def plain(properties: Properties | None) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, attribute in _SHOWN:
        value = getattr(properties, attribute, None)
        if value is not None:
            shown[name] = text_or_base64(value) if isinstance(value, bytes) else value
    if pairs := getattr(properties, "UserProperty", None):
        shown["user"] = [list(pair) for pair in pairs]
    return shown
