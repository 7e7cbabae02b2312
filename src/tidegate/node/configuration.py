"""Configurations of a running node: built with the documents over the file, tried, and compared with the last one."""

from __future__ import annotations

import gc
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import quote

import structlog

from tidegate.admin.administration import PATIENCE
from tidegate.config import Config, ConfigErrors, OverlayDocument, Source, build_config, with_documents
from tidegate.config.administration import DATABASE, SQLITE
from tidegate.config.overlay import closed_preference
from tidegate.errors import ConfigError
from tidegate.session import Bounds, Full, Limits
from tidegate.store.registry import Registry, registry

_FIXED = ("node", "durability", "reload", "sys", "authentication", "store", "tokens", "http", "keys")
"""What no reload changes, or not all of it."""

log = structlog.get_logger("tidegate.node")


def tried_config(source: Source, pieces: Sequence[OverlayDocument], strict: Collection[str] = ()) -> Config:
    """The file with documents over it, checked and tried.

    Users write preferences themselves, and must not be able to keep the node from starting, or from being changed: one
    that was right once and is not with this file is closed, so that nobody receives what it is about. Those in `strict`
    are being written, and must be right.
    """
    try:
        return _whole(source, pieces)
    except ConfigErrors as broken:
        wrong = {problem.file for problem in broken.problems}
        if not wrong <= {piece.name for piece in pieces if piece.kind == "preference" and piece.name not in strict}:
            raise
        log.error("preferences that cannot be kept are closed: nobody receives what they are about", reason=str(broken))
        return _whole(source, [closed_preference(piece) if piece.name in wrong else piece for piece in pieces])


def _whole(source: Source, pieces: Sequence[OverlayDocument]) -> Config:
    """In a thread: nothing here may stop the loop for long.

    What is made stays, and nothing of it needs the collector, which would hold everybody up to look at it.
    """
    gc.disable()
    try:
        config = build_config(with_documents(source, pieces) if pieces else source)
        verify_tests(config, source.file)
        config.built.rules.prepare()
    finally:
        gc.freeze()
        gc.enable()
    return config


def verify_tests(config: Config, file: str) -> None:
    if config.tests:
        from tidegate.explain import file_tests

        file_tests.verify_tests(config, file=file)


def session_limits(config: Config) -> Limits:
    limits = config.limits
    return Limits(
        user=Bounds(**limits.user.model_dump()),
        node=Bounds(**limits.node.model_dump()),
        unreleased_time=limits.unreleased_time,
        inflight=limits.inflight,
        receive_maximum=limits.receive_maximum,
        clock_skew=limits.clock_skew,
        queue_messages=limits.queue.messages,
        queue_bytes=limits.queue.bytes,
        full=Full(limits.queue.full.value),
        topic_aliases=limits.topic_aliases,
        max_keep_alive=None if limits.max_keep_alive is None else int(limits.max_keep_alive),
        session_expiry=None if limits.session_expiry is None else int(limits.session_expiry),
        retained=limits.retained,
        retained_bytes=limits.retained_bytes,
        subscriptions=limits.subscriptions,
        shares=limits.shares,
        patterns=limits.patterns,
        held=limits.held,
        topic_levels=limits.topic_levels,
        topic_length=limits.topic_length,
        handshake_bytes=limits.handshake_bytes,
        max_qos=limits.max_qos,
        retain=limits.retain,
        wildcards=limits.wildcard_subscriptions,
        shared=limits.shared_subscriptions,
        disconnect_denied_311=config.denied_publish_311.value == "disconnect",
        explain=config.explain,
        # under labels it would be one bit that comes down from above
        tell_no_subscribers=config.tell_no_subscribers and not config.built.rules.brokering.labelled,
    )


def check_fixed(config: Config, current: Config) -> None:
    """Refuses a change of what cannot change while the node runs."""
    for name in _FIXED:
        if _fixed(config, name) != _fixed(current, name):
            raise ConfigError(f"`{name}` cannot change while the node runs; restart it")


def _fixed(config: Config, name: str) -> Any:
    value = getattr(config, name)
    if name == "http":  # everything but the addresses can change
        return None if value is None else (value.url, value.metrics)
    if name == "keys":  # everything but where they are kept
        return value.ktm
    # the methods are loaded again with every reload; the pool that verifies passwords is made once
    return value.model_copy(update={"methods": {}}) if name == "authentication" else value


def registry_of(config: Config) -> Registry:
    """Where documents are kept."""
    if config.store != SQLITE:
        return registry(config.store, patience=PATIENCE)
    assert config.node.data is not None
    return registry(f"sqlite:///{quote(str(config.node.data / DATABASE))}", patience=PATIENCE)
