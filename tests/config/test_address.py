"""Listener URLs."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from tidegate.config.address import Address, Scheme, parse_address


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path"),
    [
        ("mqtt://127.0.0.1:1884", Scheme.MQTT, "127.0.0.1", 1884, ""),
        ("mqtt://127.0.0.1", Scheme.MQTT, "127.0.0.1", 1883, ""),
        ("mqtt://127.0.0.1/", Scheme.MQTT, "127.0.0.1", 1883, ""),
        ("MQTTS://broker.example", Scheme.MQTTS, "broker.example", 8883, ""),
        ("mqtts://[::]:9000", Scheme.MQTTS, "::", 9000, ""),
        ("ws://localhost", Scheme.WS, "localhost", 8083, ""),
        ("ws://localhost/", Scheme.WS, "localhost", 8083, "/"),
        ("wss://[::1]/mqtt/v1", Scheme.WSS, "::1", 8084, "/mqtt/v1"),
        ("mqtt://0.0.0.0:0", Scheme.MQTT, "0.0.0.0", 0, ""),
    ],
)
def test_addresses_that_are_read(url: str, scheme: Scheme, host: str, port: int, path: str) -> None:
    address = parse_address(url)
    assert address == Address(scheme=scheme, host=host, port=port, path=path)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:1883", "must begin with mqtt://"),
        ("http://127.0.0.1", "must begin with mqtt://"),
        ("mqtt://", "names no host"),
        ("mqtt://:1883", "names no host"),
        ("mqtt://127.0.0.1:99999", "is not a URL"),
        ("mqtt://127.0.0.1:x", "is not a URL"),
        ("mqtt://[::1", "is not a URL"),
        ("mqtt://[::g]:1883", "IPv6"),
        ("mqtt://[::1]x:1883", "between"),
        ("mqtt://::1:1883", ""),
        ("mqtt://1.2.3:1883", "valid IPv4"),
        ("mqtt://999.1.1.1", "valid IPv4"),
        ("mqtt://*:1883", "valid host name"),
        ("mqtt://mary:secret@127.0.0.1", "must not contain a user name"),
        ("mqtt://127.0.0.1/path", "has a path"),
        ("ws://127.0.0.1/p?x=1", "query"),
        ("ws://127.0.0.1/p#x", "fragment"),
        ("mqtt://127.0.0.1 ", "space"),
        ("mqtt://127.0.0.1\n", "space"),
        (1883, "must be a URL"),
        (None, "must be a URL"),
    ],
)
def test_addresses_that_are_refused(url: object, reason: str) -> None:
    with pytest.raises(PydanticCustomError) as refused:
        parse_address(url)
    assert reason in str(refused.value)
    assert "; " in str(refused.value), "it says how to mend it"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("10.0.0.1", False),
        ("broker.example", False),
    ],
)
def test_loopback_is_recognised(host: str, loopback: bool) -> None:
    assert parse_address(f"mqtt://{host}").loopback is loopback


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("mqtt://127.0.0.1:1", "ws://127.0.0.1:1", True),
        ("mqtt://127.0.0.1:1", "mqtt://127.0.0.1:2", False),
        ("mqtt://127.0.0.1:1", "mqtt://127.0.0.2:1", False),
        ("mqtt://0.0.0.0:1", "mqtt://127.0.0.2:1", True),
        ("mqtt://0.0.0.0:1", "mqtt://[::]:1", False),
        ("mqtt://[::1]:1", "mqtt://[::]:1", True),
        ("mqtt://127.0.0.1:0", "mqtt://127.0.0.1:0", False),
    ],
)
def test_clashes_are_recognised(one: str, other: str, clash: bool) -> None:
    assert parse_address(one).clashes(parse_address(other)) is clash
    assert parse_address(other).clashes(parse_address(one)) is clash
