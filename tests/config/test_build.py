"""What a configuration means: the rules that are built from it, and their version."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from config.samples import HEAD, WHOLE
from tidegate import policy
from tidegate.config import Built, Config, ConfigErrors, Operation, Record, build, load, parse
from tidegate.config.policies import Policy
from tidegate.flow.watch import violated
from tidegate.policy import Action, Combining, Directory, Effect, Permit, Policies, Refuse, Transport
from tidegate.policy.trust_list import Trusted


@dataclass(frozen=True)
class Somebody:
    kind: str = "client"
    client: str = "c"
    user: str | None = None
    domain: str = "d"
    scope: str = "main"
    node: str = "n"
    level: str = "plain"
    facts: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    listener: str = ""
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tls: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    impostor: bool = False


def built(more: str) -> Built:
    return parse(HEAD + more, "f.yaml", variables={}).built


def policies(made: Built) -> Policies:
    assert made.rules.policies is not None
    return made.rules.policies


class TestTheWholeExample:
    def test_its_rules(self) -> None:
        config = parse(WHOLE, "/etc/tidegate/f.yaml", variables={})
        made = config.built
        assert made is config.built
        rules = made.rules
        assert rules.domain == "mygymbrand"
        assert [each.id for each in policies(made).policies] == ["builtin:sys", "p1", "p2"]
        assert [(each.id, each.to) for each in rules.preferences.preferences] == [("up1", None), ("up2", "analyzer")]
        assert rules.preferences.preferences[0].text == "s.role == 'coach' && s.user == 'alice'"
        assert [row.id for row in rules.views.rows] == ["views[0]"]
        assert rules.views.rows[0].view.plain == ["/illness", "/therapy"]
        assert rules.views.otherwise is policy.NOTHING
        assert rules.announces_floor
        assert not rules.levels.implied
        assert not rules.holds
        assert rules.classification.category("tr1/performance/ts1/heartbeats") == "sensitive"
        assert rules.version == f"1-{made.policy_version}"

    def test_its_scopes(self) -> None:
        made = parse(WHOLE, "f.yaml", variables={}).built
        assert made.rules.space.scopes == ("gym", "brand", "analyzer")
        assert [(link.name, link.type) for link in made.rules.space.links] == [
            ("gym->brand", "up"),
            ("brand->gym", "down"),
            ("gym->analyzer", "up"),
        ]
        assert list(made.rules.monitors.by_id) == ["interface[0].export", "interface[0].import"]
        assert [str(each) for each in made.flows] == [
            "scope:brand -> scope:analyzer",
            "client:treadmill-1 -> scope:brand",
        ]
        assert not violated(made.rules.space, made.rules.brokering, made.presences, made.flows)

    def test_its_surroundings(self) -> None:
        rules = parse(WHOLE, "f.yaml", variables={}).built.rules
        assert rules.environment.added == {"location": "milan", "purpose": "training"}
        assert rules.environment.zone == ZoneInfo("Europe/Rome")
        there = rules.surroundings("ws://127.0.0.1:8083/mqtt")
        assert there.added == {"location": "rome", "purpose": "training"}
        assert there.zone == ZoneInfo("Europe/Rome")
        assert rules.surroundings("mqtt://127.0.0.1:1883") is rules.environment
        noon = datetime(2026, 7, 1, 10, 30, tzinfo=UTC).timestamp()
        assert there.at(noon)["hour"] == 12

    def test_its_people(self) -> None:
        directory = parse(WHOLE, "f.yaml", variables={}).built.directory
        known = directory.known(user="mary", client="treadmill-1")
        assert (known.user, known.roles) == ("mary", ("frequenter",))
        assert known.attributes == {"enrolled": ["ts1"], "machine": "treadmill"}
        assert directory.domain == "mygymbrand"

    def test_what_it_decides(self) -> None:
        """sharing, examples 1 and 3: frequenters of the session, and coaches during their shift."""
        made = parse(WHOLE, "f.yaml", variables={}).built
        alice = Somebody(
            user="alice",
            domain="mygymbrand",
            roles=("coach",),
            attributes=dict(made.directory.known(user="alice").attributes),
        )
        topic = "tr1/performance/ts1/speed"

        def at(hour: int) -> Any:
            when = datetime(2026, 3, 2, hour, tzinfo=ZoneInfo("Europe/Rome")).timestamp()
            return policies(made).decide(Action.READ, alice, topic, {"e": made.rules.environment.at(when)})

        assert at(9) == Permit("p2")
        assert at(15) == Refuse("default")
        assert policies(made).decide(Action.WRITE, alice, topic, {}) == Refuse("default")
        owner = made.rules.preferences.receiving("mary", "mygymbrand", topic)
        assert isinstance(owner.decide(alice, {}), policy.Granted)
        assert owner.decide(Somebody(user="bob", roles=("coach",)), {}) == Refuse("up1")

    def test_its_tests(self) -> None:
        config = parse(WHOLE, "f.yaml", variables={})
        [case] = config.tests
        assert (case.subject, case.action, case.publisher) == ("user:bob", Operation.READ, "user:mary")
        assert (case.expect, case.by, case.at) == (Effect.DENY, "up1", None)
        assert config.record is Record.TRAFFIC


class TestPolicies:
    def test_open_is_none(self) -> None:
        assert built("policies: open\n").rules.policies is None
        assert Config.ephemeral().built.rules.policies is None

    @pytest.mark.parametrize("more", ["", "policies: []\n", "policies:\n"])
    def test_without_any_only_the_node_itself_may_speak(self, more: str) -> None:
        made = policies(built(more))
        assert [each.id for each in made.policies] == ["builtin:sys"]
        service = Somebody(kind="service", client="sys")
        assert made.decide(Action.WRITE, service, "$SYS/broker/uptime", {}) == Permit("builtin:sys")
        assert made.decide(Action.READ, service, "$SYS/broker/uptime", {}) == Refuse("default")
        assert made.decide(Action.WRITE, Somebody(client="sys"), "$SYS/broker/uptime", {}) == Refuse("default")
        assert made.decide(Action.WRITE, service, "other", {}) == Refuse("default")

    def test_every_part(self) -> None:
        made = policies(
            built(
                "combining: first-applicable\npolicies:\n"
                "  - {subject: ['role:a', 'user:b'], topic: 'x/{s.user}/#', action: write, effect: deny, when: false}\n"
                "  - {id: q, subject: '*', topic: t, action: [read, write]}\n"
            )
        )
        assert made.combining is Combining.FIRST_APPLICABLE
        assert made.domain == "d"
        _, first, second = made.policies
        assert first.id == "policies[0]"
        assert first.subject == policy.Selector.parse(["role:a", "user:b"])
        assert first.topic.reads == {"s.user"}
        assert (first.action, first.effect) == (frozenset({Action.WRITE}), Effect.DENY)
        assert first.when is not None
        assert first.when.partial({}) is False
        assert (second.id, second.action, second.effect, second.when) == ("q", frozenset(Action), Effect.ALLOW, None)

    def test_equal_texts_are_read_once(self) -> None:
        entry = "  - {{id: {}, subject: 'role:a', topic: 'x/#', action: read, when: s.a == 1}}\n"
        _, first, second = policies(built("policies:\n" + entry.format("a") + entry.format("b"))).policies
        assert first.when is second.when
        assert first.subject is second.subject
        assert first.topic is second.topic


class TestTheRest:
    def test_preferences_and_views(self) -> None:
        rules = built(
            "preferences:\n"
            "  - {user: mary, topic: 'a/#', when: 'true', keep: [/x]}\n"
            "  - {id: u, user: mary, topic: 'b/{{c}}'}\n"
            "views: [{id: v, topic: a, for: ['role:x', '*'], keep: all}]\n"
            "view_default: all\n"
        ).rules
        first, second = rules.preferences.preferences
        assert (first.id, first.user, first.topic, first.keep.plain) == ("preferences[0]", "mary", "a/#", ["/x"])
        assert (second.id, second.topic, second.when, second.keep) == ("u", "b/{c}", None, policy.ALL)
        assert rules.preferences.domain == "d"
        [row] = rules.views.rows
        assert (row.id, row.topic, row.view) == ("v", "a", policy.ALL)
        assert row.subject.covers(policy.Selector.parse("role:x"))
        assert rules.views.otherwise is policy.ALL
        assert rules.views.domain == "d"

    def test_levels(self) -> None:
        assert not built("").rules.announces_floor
        assert built("levels: {}\n").rules.announces_floor
        assert built("levels: {}\n").rules.levels.order == ("plain", "tls", "mtls", "trusted")
        levels = built(
            "levels: {implied: true, order: [plain, inside, tls],\n"
            "  define: {inside: \"cidr(s.address, '10.0.0.0/8')\"}}\n"
        ).rules.levels
        assert levels.implied
        assert levels.level_of(Transport(address="10.1.2.3")) == "inside"
        assert levels.level_of(Transport(address="11.1.2.3")) == "plain"
        assert levels.level_of(Transport(address="10.1.2.3", tls_version="TLSv1.3")) == "tls"

    def test_subscriptions_that_wait(self) -> None:
        config = parse(HEAD + "subscribe: hold\nlimits: {held: 7}\n", "f.yaml")
        assert config.built.rules.holds
        assert config.limits.held == 7
        assert Config.ephemeral().limits.held == 100

    def test_records(self) -> None:
        config = Config.ephemeral()
        assert (config.record, config.audit.keep, config.audit.size, config.audit.rate) == ("off", 2592000, 1 << 30, 20)
        assert not config.traffic.payloads
        config = parse(HEAD + "record: decisions\naudit: {keep: 1d, size: 2MiB, rate: 0.5}\n", "f.yaml")
        assert (config.record, config.audit.keep, config.audit.rate) == (Record.DECISIONS, 86400, 0.5)

    def test_roles_groups_and_clients(self) -> None:
        directory = built(
            "directory:\n"
            "  users: {m: {roles: [a], groups: [g], attributes: {x: 1}}}\n"
            "  clients: {c: {user: m, roles: [b], groups: [h], attributes: {y: [2]}}}\n"
            "  roles: {a: {attributes: {z: 3, x: 0}}}\n"
            "  groups: {h: {attributes: {w: {v: 4}}}}\n"
        ).directory
        known = directory.known(user="m", client="c")
        assert (known.roles, known.groups) == (("a", "b"), ("g", "h"))
        assert known.attributes == {"x": 1, "y": [2], "z": 3, "w": {"v": 4}}
        assert isinstance(directory, Directory)

    def test_times_of_tests(self) -> None:
        case = "{{as: 'client:c', action: write, topic: t, expect: allow, at: '{}'}}"
        text = "tests:\n" + "".join(
            f"  - {case.format(at)}\n" for at in ("2026-03-02T09:30:00", "2026-03-02T09:30:00Z")
        )
        here, there = parse(HEAD + text, "f.yaml").tests
        rome = ZoneInfo("Europe/Rome")
        assert here.moment(rome) == datetime(2026, 3, 2, 9, 30, tzinfo=rome)
        assert there.moment(rome) == datetime(2026, 3, 2, 9, 30, tzinfo=UTC)

    def test_functions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "config_test_functions.py").write_text(
            "from tidegate.predicate import function\n"
            "@function()\n"
            "def is_enrolled(user: str, session: str) -> bool:\n"
            "    return (user, session) == ('mary', 'ts1')\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        text = HEAD + (
            "functions: ['config_test_functions:is_enrolled']\n"
            "policies: [{id: p, subject: '*', topic: t, action: read, when: \"is_enrolled(s.user, 'ts1')\"}]\n"
        )
        config = parse(text, "f.yaml")
        assert list(config.built.rules.functions) == ["is_enrolled"]
        made = policies(config.built)
        assert made.decide(Action.READ, Somebody(user="mary"), "t", {}) == Permit("p")
        assert made.decide(Action.READ, Somebody(user="bob"), "t", {}) == Refuse("default")
        again = Config.model_validate(config.model_dump(by_alias=True, exclude_unset=True))
        assert policies(again.built).decide(Action.READ, Somebody(user="mary"), "t", {}) == Permit("p")


class TestTrust:
    def test_without_a_list_there_is_none(self) -> None:
        assert built("").trust is None

    def test_by_subject(self) -> None:
        trust = built("trust: {accept: ['CN=remotegym'], otherwise: degrade}\n").trust
        assert trust is not None
        assert (trust.by, trust.otherwise) == (policy.By.SUBJECT, policy.Otherwise.DEGRADE)

    def test_by_certificates_in_files(self, tmp_path: Path) -> None:
        authority = trustme.CA()
        shown = []
        for name in ("a", "b", "c"):
            issued = authority.issue_cert(common_name=name)
            pem = issued.cert_chain_pems[0].bytes()
            shown.append(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
            (tmp_path / f"{name}.pem").write_bytes(pem)
        (tmp_path / "ab.crt").write_bytes((tmp_path / "a.pem").read_bytes() + (tmp_path / "b.pem").read_bytes())
        file = tmp_path / "f.yaml"
        file.write_text(HEAD + "trust: {by: certificate, accept: [ab.crt]}\n")
        config = load(file)
        trust = config.built.trust
        assert trust is not None
        assert [isinstance(trust.judge(der), Trusted) for der in shown] == [True, True, False]
        before = config.built.policy_version
        (tmp_path / "ab.crt").write_bytes((tmp_path / "c.pem").read_bytes())
        assert load(file).built.policy_version != before

    def test_files_that_are_not_there_or_hold_none(self, tmp_path: Path) -> None:
        (tmp_path / "empty.pem").touch()
        (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        file = tmp_path / "f.yaml"
        file.write_text(
            HEAD
            + "trust:\n  by: certificate\n  accept:\n    - no.pem\n    - empty.pem\n    - broken.pem\n"
            + "  otherwise: close\n"
        )
        with pytest.raises(ConfigErrors) as wrong:
            load(file)
        assert str(wrong.value).splitlines() == [
            f"{file}:7: `trust.accept[0]` is wrong: it names `{tmp_path}/no.pem`, which cannot be read "
            "(No such file or directory); check its name and permissions",
            f"{file}:8: `trust.accept[1]` is wrong: it names `{tmp_path}/empty.pem`, which holds no certificate; "
            "write one in PEM into it",
            f"{file}:9: `trust.accept[2]` is wrong: it names `{tmp_path}/broken.pem`, "
            "whose certificate cannot be read; write it again in PEM",
        ]


class TestVersions:
    BASE = (
        "directory: {users: {m: {password: 'plain:a', roles: [x]}}}\n"
        "policies: [{id: p, subject: '*', topic: t, action: read}]\n"
    )

    def test_the_same_content_has_the_same_version(self) -> None:
        version = built(self.BASE).policy_version
        assert len(version) == 12
        assert int(version, 16) >= 0
        assert built(self.BASE).policy_version == version
        assert (
            built("# why\n" + self.BASE.replace("{id: p, subject: '*',", "{subject: '*', id: p,")).policy_version
            == version
        )

    @pytest.mark.parametrize(
        "other",
        [
            BASE.replace("plain:a", "plain:b"),
            BASE + "explain: true\n",
            BASE + "limits: {held: 3}\n",
            BASE + "combining: deny-overrides\n",
            BASE + "record: decisions\n",
        ],
    )
    def test_what_decides_nothing_changes_nothing(self, other: str) -> None:
        assert built(other).policy_version == built(self.BASE).policy_version

    @pytest.mark.parametrize(
        "other",
        [
            BASE.replace("topic: t", "topic: u"),
            BASE.replace("[x]", "[y]"),
            BASE + "combining: permit-overrides\n",
            BASE + "subscribe: hold\n",
            BASE + "levels: {}\n",
            BASE + "trust: {accept: []}\n",
            BASE + "environment: {a: 1}\n",
            BASE + "classify: [{topic: t, category: c}]\n",
            BASE + "view_default: all\n",
            BASE + "views: [{id: v, topic: t, for: '*', keep: all}]\n",
            BASE + "preferences: [{id: v, user: m, topic: t}]\n",
            BASE.replace("subject", "when: true, subject"),
        ],
    )
    def test_what_decides_changes_it(self, other: str) -> None:
        assert built(other).policy_version != built(self.BASE).policy_version

    def test_so_do_domain_time_zone_and_surroundings_of_a_listener(self) -> None:
        versions = {
            parse(HEAD.replace(*change), "f").built.policy_version
            for change in (
                ("x", "x"),
                ("domain: d", "domain: e"),
                ("domain: d", "domain: d, timezone: Europe/Rome"),
                ("1'", "1', environment: {a: 1}"),
                ("1'", "1', environment: {a: 2}"),
            )
        }
        assert len(versions) == 5


class TestMadeInPython:
    def test_it_is_built_and_a_copy_is_built_anew(self) -> None:
        config = Config.ephemeral()
        rule = Policy.model_validate({"subject": "*", "topic": "t", "action": "read"})
        other = config.model_copy(update={"policies": (rule,)})
        assert config.built.rules.policies is None
        assert [each.id for each in policies(other.built).policies] == ["builtin:sys", "policies[0]"]
        assert config.model_copy().built is config.built
        assert build(config).policy_version == config.built.policy_version

    def test_what_cannot_be_built_is_told(self) -> None:
        rule = Policy.model_validate({"subject": "*", "topic": "t", "action": "read", "when": "mine(1) &&"})
        config = Config.ephemeral().model_copy(update={"policies": (rule,), "functions": ("json:loads",)})
        with pytest.raises(ConfigErrors) as wrong:
            _ = config.built
        assert str(wrong.value).splitlines() == [
            "`functions[0]` is wrong: it is no function for conditions; decorate it with @function()",
            "`policies[0]` is wrong: it ends too early; write it otherwise",
        ]


def test_ten_thousand_policies_load_in_seconds() -> None:
    rows = (
        {
            "id": f"p{n}",
            "subject": f"role:r{n % 50}",
            "topic": f"a/{n % 500}/#",
            "action": "read",
            "when": f"s.x != {n % 300}",
        }
        for n in range(10_000)
    )
    text = HEAD + "policies:\n" + "".join(f"  - {json.dumps(row)}\n" for row in rows)
    began = time.process_time()
    config = parse(text, "f.yaml")
    assert len(policies(config.built)) == 10_001
    config.warnings()
    assert time.process_time() - began < 10
