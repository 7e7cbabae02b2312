"""Health, readiness, metrics and the description of the interface."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.pretending import served
from tidegate.api.access import ALLOWED


async def test_ready_tells_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.api.health.FRESH", 0.0)
    async with served(tmp_path) as api:
        ready = await api.ask("GET", "/health/ready", None)
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        for key, broken, check in (
            ("refusing", True, "store"),
            ("rules", "", "rules"),
            ("registry", {"trouble": "it is away", "reachable": False}, "registry"),
            ("registry", None, "registry"),
        ):
            good, api.node.state[key] = api.node.state[key], broken
            ready = await api.ask("GET", "/health/ready", None)
            assert ready.status_code == 503
            assert [name for name, well in ready.json()["checks"].items() if not well] == [check]
            assert ready.json()["reasons"]
            assert "it is away" not in ready.text, "whoever asks without a token is told no more than they need"
            api.node.state[key] = good
        for key, broken, check in (
            ("audit", {"trouble": "the disk is full"}, "journals"),
            ("keys", {"trouble": "nobody answers"}, "keys"),
        ):
            api.node.state[key] = broken
            ready = await api.ask("GET", "/health/ready", None)
            assert ready.status_code == 200, "messages pass as they should"
            assert [name for name, well in ready.json()["checks"].items() if not well] == [check]
            assert ready.json()["reasons"]
            del api.node.state[key]


async def test_the_node_is_asked_once_for_many(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for _ in range(10):
            await api.ask("GET", "/health/ready", None)
        assert 1 < api.node.looked < 10


async def test_metrics(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.ask("GET", "/policies")
        await api.ask("BREW", "/policies")
        answer = await api.ask("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
        assert samples[("tidegate_up",)] == 1
        assert samples[("tidegate_clients_connected",)] == 2
        assert samples[("tidegate_strange_one",)] == 1
        assert samples["tidegate_scope_sessions", ("scope", "main")] == 3
        assert samples[("tidegate_keys_keys",)] == 5
        assert samples[("tidegate_keys_trouble",)] == 1
        assert samples[("tidegate_keys_made_total",)] == 7
        assert samples[("tidegate_http_restarts_total",)] == 3
        assert samples[("tidegate_cpu_seconds_total",)] == 1.5
        assert samples["tidegate_limit_used", ("limit", "sessions")] == 3
        assert samples["tidegate_limit", ("limit", "sessions")] == 10
        assert samples["tidegate_limit_reached_total", ("limit", "sessions")] == 1
        assert samples["tidegate_denials_total", ("rule", "p1"), ("stage", "write")] == 4
        assert samples["tidegate_link_connected", ("link", "a->b")] == 1
        assert samples["tidegate_link_queue", ("link", "a->b")] == 7
        assert samples["tidegate_link_round_trip_seconds", ("link", "a->b")] == 0.25
        assert ("tidegate_link_round_trip_seconds", ("link", "c->d")) not in samples
        assert [samples["tidegate_link_on_backup", ("link", name)] for name in ("a->b", "c->d")] == [1, 0]
        assert samples["tidegate_link_switches_total", ("link", "a->b")] == 3
        assert samples["tidegate_link_standby", ("link", "a->b")] == 1
        assert [samples["tidegate_link_oldest_seconds", ("link", name)] for name in ("a->b", "c->d")] == [2.5, 0]
        carries = ("address", "mqtts://b:8883"), ("level", "trusted"), ("link", "a->b")
        assert [key for key in samples if key[0] == "tidegate_link_floor"] == [("tidegate_link_floor", *carries)]
        buckets = [samples["tidegate_delivery_seconds_bucket", ("le", le)] for le in ("0.001", "0.01", "+Inf")]
        assert (buckets, samples[("tidegate_delivery_seconds_count",)]) == ([5, 7, 8], 8)
        assert samples[("tidegate_rules_version",)] == 1
        assert not [name for name, *_ in samples if name.endswith(("_pid", "_port"))]
        assert not any("1-abc" in dict(labels).values() for _, *labels in samples), "no series for each version"
        labels = (("method", "GET"), ("route", "/policies"), ("status", "200"))
        assert samples["tidegate_http_requests_total", *labels] == 1
        strange = (("method", "other"), ("route", "/policies"), ("status", "405"))
        assert samples["tidegate_http_requests_total", *strange] == 1
        await api.control.close()
        away = await api.ask("GET", "/metrics")
        assert "tidegate_up 0.0" in away.text


async def test_the_description(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        document = (await api.ask("GET", "/openapi.json", None)).json()
        described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        assert described == set(ALLOWED)
        assert document["info"]["version"] == "1"
        page = await api.ask("GET", "/docs", None)
        assert "://" not in page.text, "it needs no network"
        assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(assets) == 4
        assert page.text.count("<script") == page.text.count("<script src="), "the policy forbids inline scripts"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; connect-src 'self'" in policy
        assert "unsafe-eval" not in policy
        for asset in assets:
            answer = await api.ask("GET", f"/{asset}", None)
            assert answer.status_code == 200, asset
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert "openapi.json" in (await api.ask("GET", "/docs/start.js", None)).text
        assert (await api.ask("GET", "/docs/other.js", None)).status_code == 404


async def test_analysis_is_passed_on(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        flows = await api.ask("GET", "/flows", params={"from": "client:a", "to": "scope:b", "paths": "true"})
        assert flows.json()["asked"] == {"source": "client:a", "target": "scope:b", "paths": True, "live": False}
        asked = {"as": "user:mary", "action": "read", "topic": "a", "from": "user:bob", "require": "tls"}
        explained = (await api.ask("POST", "/explain", json=asked)).json()["asked"]
        assert (explained["subject"], explained["publisher"]) == ("user:mary", "user:bob")
        assert explained["terms"] == [["require", "tls"]]
        for wrong in (
            {**asked, "strange": 1},
            {**asked, "qos": 3},
            {**asked, "qos": "1"},
            {**asked, "action": "delete"},
            {**asked, "action": "write"},
            {"as": "user:mary"},
        ):
            answer = await api.ask("POST", "/explain", json=wrong)
            assert answer.status_code == 422, wrong


async def test_state_of_links(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        said = (await api.ask("GET", "/links/state")).json()
        assert [(link["link"], link["state"]) for link in said["links"]] == [("a->b", "connected")]
        assert (await api.ask("GET", "/links/strange")).status_code == 404  # a document


async def test_tokens(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        made = await api.ask("POST", "/tokens", json={"role": "user", "user": "eve", "seconds": 3600})
        assert made.status_code == 201
        assert (await api.ask("GET", "/me", made.json()["token"])).json()["user"] == "eve"
        listed = await api.ask("GET", "/tokens")
        assert made.json()["token"] not in listed.text
        assert (await api.ask("DELETE", "/tokens/new")).status_code == 200
        assert (await api.ask("DELETE", "/tokens/new")).status_code == 404
        for wrong in (
            {"role": "god"},
            {"role": "user"},
            {"role": "admin", "user": "x"},
            {"role": "admin", "seconds": 1},
        ):
            assert (await api.ask("POST", "/tokens", json=wrong)).status_code == 422
