"""MQTT 5 properties: from options of the command line, and as plain values for display.

MQTT 3.1.1 has none of them; to ask for one there is an error and not a silent omission.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidegate.cli import terminal
from tidegate.cli.connection_options import ConnectionOptions
from tidegate.cli.options import name_and_value
from tidegate.client.mqtt_connection import empty

_SHOWN: Final = (
    ("content_type", "ContentType"),
    ("response_topic", "ResponseTopic"),
    ("correlation", "CorrelationData"),
    ("expiry", "MessageExpiryInterval"),
    ("payload_format", "PayloadFormatIndicator"),
    ("subscription", "SubscriptionIdentifier"),
)


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
    """QoS and flags of a subscription."""
    if not options.v5 and (no_local or no_retained or retain_as_published):
        terminal.usage("--no-local, --no-retained and --retain-as-published need MQTT 5")
    handling = SubscribeOptions.RETAIN_DO_NOT_SEND if no_retained else SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
    return SubscribeOptions(qos=qos, noLocal=no_local, retainAsPublished=retain_as_published, retainHandling=handling)


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
