"""The options that `pub` and `sub` share: which broker to connect to, as whom, and how.

They are spelled as in mosquitto_pub and mosquitto_sub where they mean the same: `-h` is the host, and help is `--help`.
A field of `ConnectionOptions` is one option; `with_connection_options` adds all of them to a command.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from tidegate.cli import terminal
from tidegate.cli.options import with_options

_PORTS: Final = {(False, False): 1883, (True, False): 8883, (False, True): 8083, (True, True): 8084}
_LONGEST: Final = 0xFFFFFFFF
_FILE: Final = {"exists": True, "dir_okay": False}
_connection = functools.partial(typer.Option, rich_help_panel="Connection")
_tls = functools.partial(typer.Option, rich_help_panel="TLS")
_session = functools.partial(typer.Option, rich_help_panel="Session")
_will = functools.partial(typer.Option, rich_help_panel="Will")
_keys = functools.partial(typer.Option, rich_help_panel="Protected topics")


class Protocol(StrEnum):
    V5 = "5"
    V311 = "311"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """A broker, and everything that CONNECT says to it."""

    host: Annotated[str, _connection("-h", "--host", help="Broker to connect to.")] = "127.0.0.1"
    port: Annotated[
        int | None,
        _connection(
            "-p", "--port", help="Port. Default: 1883; with TLS 8883; WebSocket 8083; both 8084.", min=1, max=65535
        ),
    ] = None
    backup: Annotated[
        list[str] | None,
        _connection(
            "--backup",
            help="Address to use while the host does not answer. Repeat the option for several.",
            metavar="HOST[:PORT]",
        ),
    ] = None
    attempts: Annotated[
        int, _connection("--attempts", help="How often the host is tried before a backup.", min=1, max=1000)
    ] = 2
    interval: Annotated[float, _connection("--interval", help="Seconds from one attempt to the next.", min=0.0)] = 1.0
    restore: Annotated[
        float, _connection("--restore", help="With a backup: look for the host every so many seconds.", min=0.1)
    ] = 30.0
    user: Annotated[str | None, _connection("-u", "--user", help="User name.")] = None
    password: Annotated[
        str | None,
        _connection(
            "-P",
            "--password",
            help="Password. Other users of this machine can see options, but not the variable.",
            envvar="TIDEGATE_PASSWORD",
        ),
    ] = None
    identifier: Annotated[str | None, _connection("-i", "--id", help="Client identifier. Default: a random one.")] = (
        None
    )
    protocol: Annotated[Protocol, _connection("--protocol", help="Version of MQTT.")] = Protocol.V5
    ws: Annotated[str | None, _connection("--ws", help="Connect over WebSocket, with this path.", metavar="PATH")] = (
        None
    )
    timeout: Annotated[
        float, _connection("--answer-timeout", help="Seconds to wait for each answer of the broker.", min=0.1)
    ] = 10.0
    keepalive: Annotated[int, _connection("-k", "--keepalive", help="Keep-alive in seconds.", min=1, max=65535)] = 60
    capability: Annotated[
        Path | None, _connection("--capability", help="File with a capability to present.", **_FILE)
    ] = None
    proof_key: Annotated[
        Path | None,
        _connection(
            "--proof-key",
            help="Private key (PEM) of the capability: proves the connection and each message (MQTT 5).",
            **_FILE,
        ),
    ] = None
    private_key: Annotated[
        Path | None,
        _keys(
            "--private-key", help="Private key that decrypts protected topics; its public key is registered.", **_FILE
        ),
    ] = None
    reader: Annotated[
        str | None,
        _keys(
            "--reader", help="For whom the public key is registered. Default: user:USER.", metavar="user:NAME|client:ID"
        ),
    ] = None
    keys_url: Annotated[
        str | None, _keys("--keys-url", help="Request keys over HTTP from this URL. Default: over MQTT.", metavar="URL")
    ] = None
    token: Annotated[
        str | None,
        _keys(
            "--token",
            help="Token for --keys-url. Other users of this machine can see options, but not the variable.",
            envvar="TIDEGATE_TOKEN",
        ),
    ] = None
    tls: Annotated[bool, _tls("--tls", help="Use TLS, trusting the system's authorities.")] = False
    cafile: Annotated[
        Path | None, _tls("--cafile", help="Use TLS, trusting the authorities in this file (PEM).", **_FILE)
    ] = None
    cert: Annotated[Path | None, _tls("--cert", help="Client certificate (PEM).", **_FILE)] = None
    key: Annotated[Path | None, _tls("--key", help="Private key of the certificate (PEM).", **_FILE)] = None
    insecure: Annotated[bool, _tls("--insecure", help="Use TLS without verifying the broker's certificate.")] = False
    clean: Annotated[bool, _session("--clean/--no-clean", help="Begin a new session, or resume one.")] = True
    session_expiry: Annotated[
        int | None,
        _session(
            "--session-expiry",
            help="Seconds the broker keeps the session after this command ends (MQTT 5).",
            metavar="SECONDS",
            min=0,
            max=_LONGEST,
        ),
    ] = None
    will_topic: Annotated[
        str | None, _will("--will-topic", help="Topic of the will: published if the connection breaks.")
    ] = None
    will_message: Annotated[str, _will("--will-message", help="Payload of the will.")] = ""
    will_qos: Annotated[int, _will("--will-qos", help="QoS of the will.", min=0, max=2)] = 0
    will_retain: Annotated[bool, _will("--will-retain", help="Retain the will.")] = False
    will_delay: Annotated[
        int | None,
        _will(
            "--will-delay",
            help="Seconds to wait before the will is published (MQTT 5).",
            metavar="SECONDS",
            min=0,
            max=_LONGEST,
        ),
    ] = None

    @property
    def v5(self) -> bool:
        return self.protocol is Protocol.V5

    @property
    def encrypted(self) -> bool:
        return self.tls or self.insecure or self.cafile is not None or self.cert is not None

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port or _PORTS[self.encrypted, self.ws is not None]

    def mistake(self) -> str:
        """What is wrong with the combination of options; empty if nothing is."""
        from tidegate.client.failover import place

        for each in self.backup or ():
            try:
                place(each, 1)
            except ValueError as wrong:
                return f"--backup {wrong}"
        if self.will_topic is None and (
            self.will_message or self.will_retain or self.will_qos or self.will_delay is not None
        ):
            return "a will needs --will-topic"
        if not self.v5:
            if self.session_expiry is not None:
                return "--session-expiry needs MQTT 5; with --protocol 311 use --no-clean"
            if self.will_delay is not None:
                return "--will-delay needs MQTT 5"
            if self.proof_key is not None:
                return "--proof-key needs MQTT 5"
            if self.capability is not None and self.password is not None:
                return "with --protocol 311 a capability is sent in place of the password: leave that out"
            # [MQTT-3.1.2-22] of MQTT 3.1.1; MQTT 5 lifted it
            if self.password is not None and self.user is None:
                return "with --protocol 311 a password needs a user name: add --user"
        if self.proof_key is not None and self.capability is None:
            return "--proof-key needs --capability"
        if self.private_key is None and (self.reader is not None or self.keys_url is not None):
            return "--reader and --keys-url are for protected topics: add --private-key"
        if self.keys_url is not None:
            if not self.token:
                return "--keys-url needs --token: that of a user"
            if urlsplit(self.keys_url).scheme not in ("http", "https") or not urlsplit(self.keys_url).hostname:
                return f"--keys-url {self.keys_url} is not an HTTP address: write https://host:port"
        if not self.clean and not self.identifier:
            return "--no-clean needs a client identifier: add --id"
        if self.key is not None and self.cert is None:
            return "--key needs --cert"
        return ""


def with_connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command, which receives them as `ConnectionOptions` in its first parameter."""

    @functools.wraps(command)
    def checked(options: ConnectionOptions, **given: Any) -> None:
        if mistake := options.mistake():
            terminal.usage(mistake)
        command(options, **given)

    return with_options(checked, ConnectionOptions)
