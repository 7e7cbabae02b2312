"""The section `sources`: what is wrong with it, and what is warned about."""

from __future__ import annotations

import pytest

from tidegate.config import Config, ConfigErrors, parse

BASE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
http: {url: "http://127.0.0.1:8080"}
policies: open
"""


def made(sources: str, base: str = BASE) -> Config:
    return parse(f"{base}sources: {sources}\n", "test.yaml")


def test_defaults() -> None:
    said = parse(BASE, "test.yaml").sources
    assert (said.registration.value, said.unregistered.value, said.topic) == ("admin", "refuse", None)
    assert said.max_records == 10_000


def test_topic() -> None:
    assert made('{topic: "raw/{type}/{source}"}').sources.topic == "raw/{type}/{source}"
    assert made("{topic: raw}").sources.topic == "raw"


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("raw/{who}", "`{who}`"),
        ("raw/{source", "single brace"),
        ("raw/+", "must be a topic"),
        ("$SYS/{source}", "must be a topic"),
        ("{source}/raw", "begins with a name"),
        ("", "must be a topic"),
    ],
)
def test_topics_that_are_none(topic: str, text: str) -> None:
    with pytest.raises(ConfigErrors, match=text):
        made(f'{{topic: "{topic}"}}')


def test_without_http() -> None:
    with pytest.raises(ConfigErrors, match="has no effect without `http` or `pipeline`"):
        made("{max_records: 5}", BASE.replace('http: {url: "http://127.0.0.1:8080"}', ""))


def test_warnings_about_everybody() -> None:
    everywhere = BASE.replace("http://127.0.0.1", "http://0.0.0.0")
    told = " ".join(text for _, text in made("{registration: open, unregistered: accept}", everywhere).warnings())
    assert "send data" in told
    assert "register" in told
    assert "send data" not in " ".join(text for _, text in made("{unregistered: accept}").warnings())
