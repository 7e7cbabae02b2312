"""MQTT 5 properties: from options of the command line, and as plain values for display.

MQTT 3.1.1 has none of them; to ask for one there is an error and not a silent omission.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.cli import terminal
from tidegate.cli.connection_options import ConnectionOptions

_SHOWN: Final = (
    ("content_type", "ContentType"),
    ("response_topic", "ResponseTopic"),
    ("correlation", "CorrelationData"),
    ("expiry", "MessageExpiryInterval"),
    ("payload_format", "PayloadFormatIndicator"),
    ("subscription", "SubscriptionIdentifier"),
)


def empty(packet_type: int) -> Properties:
    """Properties of a packet, to be filled."""
    return Properties(packet_type)  # type: ignore[no-untyped-call]


def publish_properties(
    options: ConnectionOptions,
    *,
    user: Sequence[str] | None,
    require: str | None,
    view: str | None,
    expiry: int | None,
    response_topic: str | None,
    correlation: str | None,
    content_type: str | None,
) -> Properties | None:
    """The properties of a PUBLISH, or none where none is asked for."""
    properties = empty(PacketTypes.PUBLISH)
    _add_user(properties, user, require=require, view=view)
    if expiry is not None:
        properties.MessageExpiryInterval = expiry
    if response_topic is not None:
        properties.ResponseTopic = response_topic
    if correlation is not None:
        properties.CorrelationData = correlation.encode()
    if content_type is not None:
        properties.ContentType = content_type
    return _allowed(options, properties)


def subscribe_properties(
    options: ConnectionOptions, *, user: Sequence[str] | None, require: str | None, where: str | None
) -> Properties | None:
    """The properties of a SUBSCRIBE, or none where none is asked for."""
    properties = empty(PacketTypes.SUBSCRIBE)
    _add_user(properties, user, require=require, where=where)
    return _allowed(options, properties)


def subscribe_options(
    options: ConnectionOptions, *, qos: int, no_local: bool, no_retained: bool, retain_as_published: bool
) -> SubscribeOptions:
    """QoS and flags of a subscription."""
    if not options.v5 and (no_local or no_retained or retain_as_published):
        terminal.usage("--no-local, --no-retained and --retain-as-published need MQTT 5")
    return SubscribeOptions(
        qos=qos,
        noLocal=no_local,
        retainAsPublished=retain_as_published,
        retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND
        if no_retained
        else SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE,
    )


def plain(properties: Properties | None) -> dict[str, Any]:
    """The properties of a received message as values that JSON has."""
    shown: dict[str, Any] = {}
    for name, attribute in _SHOWN:
        value = getattr(properties, attribute, None)
        if value is not None:
            shown[name] = text_or_base64(value) if isinstance(value, bytes) else value
    if pairs := getattr(properties, "UserProperty", None):
        shown["user"] = [list(pair) for pair in pairs]
    return shown


def text_or_base64(data: bytes) -> str | dict[str, str]:
    """Text where the bytes are UTF-8, otherwise an object with base64, so that nothing is lost."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _add_user(properties: Properties, pairs: Sequence[str] | None, **instructions: str | None) -> None:
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            terminal.usage(f"`{pair}` is not a property: write NAME=VALUE")
        properties.UserProperty = (name, value)
    for name, instruction in instructions.items():
        if instruction is not None:
            properties.UserProperty = (name, instruction)


def _allowed(options: ConnectionOptions, properties: Properties) -> Properties | None:
    if properties.isEmpty():  # type: ignore[no-untyped-call]
        return None
    if not options.v5:
        terminal.usage("properties (and --require, --view, --where) need MQTT 5; leave out --protocol 311")
    return properties
