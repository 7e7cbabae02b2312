"""A connection to any MQTT broker for `pub` and `sub`: the client of `tidegate.client`, made from options.

Every failure leaves here as `Refused`, `Unreachable` or KeysError, with a text for people.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes

from tidegate.cli import terminal
from tidegate.cli.connection_options import ConnectionOptions
from tidegate.cli.tokens import load_key, load_token
from tidegate.client import V5, V311, Client, KeysError, Refused, Unreachable
from tidegate.client.mqtt_connection import empty


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
