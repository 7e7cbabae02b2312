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
from tidegate.cli.properties import empty
from tidegate.cli.target import Target, Will
from tidegate.cli.tokens import load_key, load_token
from tidegate.client import V5, V311, Client, KeysError, Refused, Unreachable


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Client]:
    """A connection for the length of a `with`; the broker is told at its end."""
    client = _client(target)
    try:
        await client.__aenter__()
    except Refused as refused:
        if refused.said or refused.code not in (0x86, 0x87):
            raise
        advice = "check --user and --password, --cert and --key, or --capability and --proof-key"
        raise Refused(refused.what, refused.reason, advice) from None
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


def _client(target: Target) -> Client:
    host, port = target.place
    return Client(
        host,
        port=port,
        user=target.user,
        password=target.password,
        identifier=target.identifier,
        version=V5 if target.v5 else V311,
        tls=_tls(target) if target.encrypted else False,
        websocket=target.ws,
        capability=None if target.capability is None else load_token(target.capability),
        proof_key=None if target.proof_key is None else load_key(target.proof_key),
        private_key=target.private_key,
        reader=target.reader,
        keys=target.keys_url,
        token=target.token,
        patience=target.timeout,
        timeout=target.timeout,
        keepalive=target.keepalive,
        clean=target.clean,
        session_expiry=target.session_expiry,
        will=_will(target.will),
    )


def _will(will: Will | None) -> aiomqtt.Will | None:
    if will is None:
        return None
    properties = None
    if will.delay is not None:
        properties = empty(PacketTypes.WILLMESSAGE)
        properties.WillDelayInterval = will.delay
    return aiomqtt.Will(will.topic, will.payload.encode(), will.qos, will.retain, properties)


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


def run(work: Coroutine[Any, Any, None], *, interrupt_is_fine: bool = False) -> None:
    """Run to the end; failures end the command with exit code 1, and so does Ctrl-C where it is not the way out."""
    try:
        asyncio.run(work)
    except (Refused, Unreachable, KeysError) as failed:
        terminal.fail(str(failed))
    except KeyboardInterrupt:
        if not interrupt_is_fine:
            terminal.fail("interrupted")
