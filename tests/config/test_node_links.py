"""Links to scopes of other nodes, the node's own certificate, and other domains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import Config, ConfigErrors, load, parse
from tidegate.monitor import Direction
from tidegate.policy.domains import Domain
from tidegate.policy.failover import Failover, Mode
from tidegate.policy.scopes import ALL, Forward, NodeLink, Overflow, ScopeLink, TopicMapping

HEAD = """\
version: 1
node: {name: n, domain: d, cert: n.pem, ca: ca.pem}
policies: open
listeners: [{url: "mqtt://127.0.0.1", anonymous: true, scope: gym}]
scopes: {gym: {parents: [brand]}, brand: {}}
"""
TLS = 'listeners: [{url: "mqtts://127.0.0.1", scope: gym, cert: c, client_ca: ca, client_cert: required}]\n'
LINK = 'links: [{from: gym, to: far, via: ["mqtts://far.example"], peer: CN=far}]\n'
WAITING = "links: [{from: far, to: gym, peer: CN=far}]\n"


def read(more: str, head: str = HEAD) -> Config:
    return parse(head + more, "f.yaml", variables={})


def remote(more: str, head: str = HEAD) -> NodeLink:
    space = read(more, head).built.rules.space
    assert space.scopes == ("gym", "brand")
    assert [link.name for link in space.links] == ["gym->brand", "brand->gym"]
    [link] = space.remote
    return link


def problems(more: str, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        assert read(more, head).built
    return str(wrong.value).splitlines()


# -- what is built ---------------------------------------------------------------------------------------------------


def test_the_end_that_connects() -> None:
    link = remote(
        """\
links:
  - from: gym
    to: far
    via: ["mqtts://far.example:8884", "mqtts://[::1]"]
    peer: CN=far,O=Gyms
    overflow: refuse
    forward: subscriptions
    failover: {mode: active, attempts: 2, interval: 500ms, restore: null, heartbeat: 200ms, overload: 10000}
    share: [{topic: "+/speed", qos: 1, remote_prefix: "MyGym/"}, {topic: "cmd/#", direction: in}]
"""
    )
    out = (TopicMapping(filter="+/speed", there="MyGym/", qos=1),)
    into = (TopicMapping(filter="cmd/#"),)
    assert link == NodeLink(
        near="gym",
        far="far",
        out=ScopeLink(source="gym", target="far", shares=out, back=into),
        into=ScopeLink(source="far", target="gym", shares=into, back=out),
        via=("mqtts://far.example:8884", "mqtts://[::1]:8883"),
        peer="CN=far,O=Gyms",
        overflow=Overflow.REFUSE,
        forward=Forward.SUBSCRIPTIONS,
        failover=Failover(mode=Mode.ACTIVE, attempts=2, interval=0.5, restore=None, heartbeat=0.2, overload=10000),
    )
    assert link.name == str(link) == "gym->far"


def test_the_end_that_is_connected_to_turns_it_round() -> None:
    head = HEAD.replace('listeners: [{url: "mqtt://127.0.0.1", anonymous: true, scope: gym}]\n', TLS)
    share = 'share: [{topic: "+/speed", remote_prefix: "MyGym/"}]'
    link = remote(WAITING.replace("}]", f", {share}}}]"), head)
    into = (TopicMapping(filter="+/speed", there="MyGym/"),)
    assert (link.name, link.out, link.via, link.peer) == ("gym->far", None, (), "CN=far")
    assert link.into == ScopeLink(source="far", target="gym", shares=into, back=())
    assert link.directions == (link.into,)


@pytest.mark.parametrize(
    ("direction", "out", "into"),
    [("", True, True), (", direction: out", True, False), (", direction: in", False, True)],
)
def test_everything_crosses_without_shares(direction: str, out: bool, into: bool) -> None:
    link = remote(LINK.replace("}]", f"{direction}}}]"))
    assert (link.out is not None, link.into is not None) == (out, into)
    assert all(each.shares == ALL for each in link.directions)
    assert link.overflow is Overflow.DROP


@pytest.mark.parametrize(("direction", "renames"), [("out", False), ("in", True), ("both", True)])
def test_what_comes_from_another_node_may_have_had_another_topic(direction: str, renames: bool) -> None:
    assert read(LINK.replace("}]", f", direction: {direction}}}]")).built.rules.renames is renames


def test_a_peer_by_its_fingerprint() -> None:
    digits = ":".join(["AB"] * 32)
    assert remote(LINK.replace("CN=far", f'"sha256:{digits}"')).peer == "sha256:" + "ab" * 32


def test_the_trust_list_does_for_a_peer() -> None:
    text = LINK.replace(", peer: CN=far", "") + 'trust: {accept: ["CN=far"]}\n'
    assert remote(text).peer is None
    assert read(text).warnings() == []  # the list is of use without a TLS listener


def test_types_are_assigned_as_inside_a_node() -> None:
    link = remote(
        LINK
        + 'brokering: {preset: component, assign: [{link: "gym->far", type: up}, {link: "far->gym", type: down}]}\n'
    )
    assert [each.type for each in link.directions] == ["up", "down"]
    link = remote(LINK + "brokering: {allow: [[a, b]], default: {in: a, out: b, link: b}}\n")
    assert [each.type for each in link.directions] == ["b", "b"]


def test_each_change_is_another_policy_version() -> None:
    texts = [
        "",
        LINK,
        LINK.replace("far.example", "far.example:8884"),
        LINK.replace("CN=far", "CN=other"),
        LINK.replace("}]", ", overflow: refuse}]"),
        LINK + "trust: {domains: {x: {roles: {a: b}}}}\n",
        LINK + "trust: {domains: {x: {nodes: [a]}}}\n",
        LINK + "trust: {domains: {d: {nodes: [a], through: [b]}}}\n",
    ]
    assert len({read(text).built.policy_version for text in texts}) == len(texts)


# -- what is wrong ---------------------------------------------------------------------------------------------------

_PEER = "`links[0].peer` "


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "links: [{from: gym, to: far}]\n",
            "f.yaml:6: `links[0].to` names the unknown scope `far`; add it under `scopes`, or `via` or `peer` if "
            "another node has it",
        ),
        (
            LINK.replace("from: gym", "from: gim"),
            "f.yaml:6: `links[0]` joins `gim` and `far`, and neither is a scope of this node; did you mean `gym`?",
        ),
        (
            "scopes: {gym: {}, b: {}}\n" + LINK.replace("to: far", "to: b"),
            "`links[0].via` is of no use between two scopes of this node; remove it, or name a scope of the other node",
        ),
        (
            LINK.replace("mqtts:", "mqtt:"),
            "f.yaml:6: `links[0].via[0]` is not encrypted, and nodes prove to each other who they are; write mqtts://",
        ),
        (LINK.replace("mqtts:", "ws:"), "`links[0].via[0]` must begin with mqtts:// or mqtt://; write for example "),
        (
            LINK.replace("far.example", ""),
            "`links[0].via[0]` names no host; write the name or address of the other machine",
        ),
        (
            LINK.replace("far.example", "0.0.0.0"),
            "`links[0].via[0]` means all interfaces of a machine, and nobody can connect to that; write the host and ",
        ),
        (LINK.replace("far.example", "far.example:0"), "`links[0].via[0]` has the port 0, and nobody can connect to "),
        (
            LINK.replace("//far", "//me:pw@far"),
            "`links[0].via[0]` must not contain a user name or password; nodes come with a certificate",
        ),
        (
            LINK.replace("far.example", "far.example/x"),
            "`links[0].via[0]` has a path, query or fragment; end it after ",
        ),
        (
            LINK.replace('"]', '", "mqtts://far.example:8883"]'),
            "`links[0].via[1]` is `mqtts://far.example:8883` again; remove one of the two",
        ),
        (LINK.replace('"mqtts://far.example"', ""), "`links[0].via` must not be empty; add at least one entry"),
        (LINK.replace("CN=far", "far"), f"{_PEER}is wrong: `far` is no subject; write it as in `CN=remotegym,"),
        (LINK.replace("CN=far", '"sha256:ab"'), f"{_PEER}is wrong: `sha256:ab` is no certificate; give its SHA-256 "),
        (
            LINK.replace(", peer: CN=far", ""),
            f"{_PEER}is missing, and there is no `trust.accept`, so no node would be trusted; add one of the two",
        ),
        (
            WAITING,
            "`links[0]` has no `via`, so the other end connects, and no listener asks for a certificate; add `via`, "
            "or an mqtts:// listener with `client_cert: optional` and `client_ca`",
        ),
        (
            "links: [{from: gym, to: lab, overflow: drop}]\nscopes: {gym: {}, lab: {}}\n",
            "`links[0].overflow` has no effect inside a node; add `via` or `peer` if another has the scope, or ",
        ),
        (
            LINK.replace("}]", ", failover: {mode: active}}]"),
            "`links[0].failover` chooses between addresses, and `via` has one; add another one to `via`, or remove it",
        ),
        (
            "links: [{from: gym, to: far, peer: CN=far, failover: {}}]\n",
            "`links[0].failover` chooses between addresses, and `via` has none; add another one",
        ),
        (
            "links: [{from: gym, to: hq, broker: {}, peer: CN=hq}]\n",
            "`links[0].broker` is connected to by this node; add `via` with its address",
        ),
        (
            'links: [{from: gym, to: hq, broker: {}, peer: CN=hq, via: ["mqtt://hq.example"]}]\n',
            "`links[0].peer` names a certificate, and an address in `via` is not encrypted; write mqtts://",
        ),
        (
            'links: [{from: gym, to: hq, broker: {password: x}, via: ["mqtt://hq.example"]}]\n',
            "`links[0].broker.password` has no effect without `user`; add that, or remove it",
        ),
        (
            'links: [{from: gym, to: hq, broker: {}, export: [enrolled], via: ["mqtt://hq.example"]}]\n',
            "`links[0].export` tells another Tidegate node of publishers, and there is none at the other end",
        ),
        (
            'links: [{from: gym, to: hq, broker: {}, failover: {}, via: ["mqtt://a.example", "mqtt://b.example"]}]\n',
            "`links[0].failover` needs a Tidegate node at the other end; remove it: addresses are tried in order",
        ),
        (
            LINK.replace("}]", ", forward: some}]"),
            "`links[0].forward` must be `all` or `subscriptions`; write one of these",
        ),
        (
            "links: [{from: gym, to: lab, forward: subscriptions}]\nscopes: {gym: {}, lab: {}}\n",
            "`links[0].forward` has no effect inside a node; add `via` or `peer` if another has the scope, or ",
        ),
        (
            LINK[:-2] + ", {from: far, to: gym, peer: CN=far, via: ['mqtts://x']}]\n",
            "`links[1]` joins `far` and `gym`, as `links[0]` does; remove one of the two",
        ),
        (
            LINK + "brokering: {allow: [[a, b]], default: {in: a, out: b}, assign: [{link: gym->brand, type: a}, "
            "{link: brand->gym, type: a}]}\n",
            "`links[0]` has no type for `gym->far` and `far->gym`, so nothing would pass there; add "
            '`{link: "gym->far", type: …}` to `brokering.assign`, or set `brokering.default.link`',
        ),
        (
            LINK + 'brokering: {preset: component, assign: [{link: "gym->far", type: up}]}\n',
            "`links[0]` has no type for `far->gym`, so nothing would pass there",
        ),
        (
            LINK
            + 'brokering: {allow: [[a, b]], default: {in: a, out: b, link: a}, assign: [{link: "gym->fa", type: a}]}\n',
            "`brokering.assign[0].link` names the unknown link `gym->fa`; did you mean `gym->far`?",
        ),
        (
            LINK + "preferences: [{user: mary, topic: '#', to: fa}]\n",
            "`preferences[0].to` names the unknown scope `fa`; did you mean `far`?",
        ),
        (
            LINK + "flows: {forbid: ['scope:brand -> scope:farr']}\n",
            "`flows.forbid[0]` names the unknown scope `farr`; did you mean `far`?",
        ),
        (
            LINK + "monitors: [{id: m, link: 'gym->fa', rate: 1/s}]\n",
            "`monitors[0].link` names the unknown scope `fa`; ",
        ),
        (
            LINK + "monitors: [{id: m, link: 'gym->far', rate: 1/s, suppressed: refuse}]\n",
            "`monitors[0].suppressed` has no effect where events leave for another node: nobody is acknowledged; ",
        ),
        (
            LINK + "monitors: [{id: m, scope: far, direction: ex_pub, rate: 1/s}]\n",
            "`monitors[0].scope` names the unknown scope `far`; ",
        ),
        (
            LINK + "monitors: [{id: m, link: 'client:x->far', rate: 1/s}]\n",
            "`monitors[0].link` names the unknown scope `far`; ",
        ),
        (
            "trust: {domains: {d: {roles: {a: b}}}}\n",
            "`trust.domains.d.roles` is said of the domain of this node, whose people are known here as they are; ",
        ),
        (
            "trust: {domains: {x: {nodes: [a]}, y: {nodes: [b, a]}}}\n",
            "f.yaml:6: `trust.domains.y.nodes[1]` is `a`, which is a node of `x` already; a node has one domain, so ",
        ),
        (
            "trust: {domains: {x: {attributes: [user]}}}\n",
            "`trust.domains.x.attributes[0]` is set by the node itself and nobody else; call the attribute otherwise",
        ),
        (
            "trust: {domains: {x: {users: {bob: john@d}}}}\n",
            "`trust.domains.x.users.bob` has an `@`, which stands between a name and its domain; ",
        ),
        (
            "trust: {domains: {x: {role: {}}}}\n",
            "f.yaml:6: unknown key `role` in `trust.domains.x`; did you mean `roles`?",
        ),
    ],
)
def test_each_way_to_write_it_wrong(more: str, said: str) -> None:
    head = HEAD.replace("scopes: {gym: {parents: [brand]}, brand: {}}\n", "") if "scopes:" in more else HEAD
    [told] = problems(more, head)
    assert said in told


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("", ["`node.cert` is missing, which `links[0]` needs", "`node.ca` is missing, which `links[0]` needs"]),
        (
            ", cert: n.pem",
            ["`node.ca` is missing, which `links[0]` needs: nodes prove to each other who they are; add "],
        ),
        (", key: n.key", ["`node.key` has no effect without `cert`; add that, or remove it"]),
    ],
)
def test_the_node_needs_a_certificate_where_it_connects(node: str, said: list[str]) -> None:
    told = problems(LINK, HEAD.replace(", cert: n.pem, ca: ca.pem", node))
    assert len(told) == len(said)
    assert all(text in line for text, line in zip(said, told, strict=True))


def test_a_remote_scope_is_no_subject_but_its_links_are() -> None:
    rules = """\
policies:
  - {id: out, subject: "link:gym->far", topic: "#", action: write}
  - {id: into, subject: "link:far->gym", topic: "#", action: read}
"""
    head = HEAD.replace("policies: open\n", "")
    assert [text for _, text in read(LINK + rules, head).warnings()] == []
    [told] = problems(LINK + rules.replace("link:gym->far", "scope:far"), head)
    assert "is `scope:far`, a scope of another node, which acts there; write `link:gym->far`" in told
    closed = 'policies: [{id: p, subject: "user:x", topic: "#", action: [read, write]}]\n'
    alone = head.replace("gym: {parents: [brand]}, brand: {}", "gym: {}")
    warnings = [text for _, text in read(LINK.replace("}]", ", direction: in}]") + closed, alone).warnings()]
    assert any(text.endswith("allow `scope:gym` to read, for instance") for text in warnings)


def test_preferences_and_flows_may_name_a_remote_scope() -> None:
    config = read(
        LINK + "preferences: [{id: u, user: mary, topic: '#', to: far, when: 'false'}]\n"
        "directory: {users: {mary: {password: 'plain:m'}}}\n"
        "flows: {forbid: ['scope:far -> scope:brand'], require: ['scope:brand -> scope:far']}\n"
    )
    assert config.built.rules.preferences.preferences[0].to == "far"
    assert [each.target for each in config.built.flows] == ["scope:brand", "scope:far"]


def test_monitors_act_where_events_leave_for_the_other_node_and_where_they_arrive() -> None:
    config = read(
        LINK
        + """\
monitors:
  - {id: leaving, link: "gym->far", rate: 1/s}
  - {id: arriving, link: "far->gym", rate: 1/s}
  - {id: border_out, scope: gym, direction: ex_pub, rate: 1/s}
  - {id: border_in, scope: gym, direction: ex_sub, rate: 1/s}
  - {id: inside, link: "gym->brand", rate: 1/s}
  - {id: elsewhere, scope: brand, direction: ex_pub, rate: 1/s}
"""
    )
    rules = config.built.rules
    [link] = rules.space.remote
    near, far, over = f"scope:{link.near}", f"scope:{link.far}", rules.monitors.over
    leaving = over(near, far, kind=Direction.EX_PUB, scope=link.near)
    arriving = over(far, near, kind=Direction.EX_SUB, scope=link.near)
    assert [each.id for each in leaving] == ["leaving", "border_out"]
    assert [each.id for each in arriving] == ["arriving", "border_in"]
    assert {each.id: each.place for each in rules.monitors if each.link} == {
        "leaving": "gym",
        "arriving": "gym",
        "inside": "brand",
    }
    inside = rules.monitors.over("scope:gym", "scope:brand", kind=Direction.EX_PUB, scope="gym")
    assert [each.id for each in inside] == ["border_out"]


def test_a_monitor_that_makes_events_on_the_way_out_needs_no_policy_to_write() -> None:
    head = HEAD.replace("policies: open", "policies: [{id: p, subject: '*', topic: '#', action: [read, write]}]")
    monitor = "monitors: [{{id: m, link: '{}', map: {{a: b}}}}]\n"
    doubts = [
        any("no policy allows it to write" in text for _, text in read(LINK + monitor.format(name), head).warnings())
        for name in ("gym->far", "far->gym")
    ]
    assert doubts == [False, True]


# -- other domains ---------------------------------------------------------------------------------------------------


def test_domains_are_believed_by_everything_that_selects() -> None:
    config = read(
        """\
trust:
  domains:
    far: {nodes: [far-1], through: [hub], users: {bob: john}, roles: {coach: trainer}, groups: {a: b}, attributes: [x]}
    other: {}
preferences: [{id: u, user: john, topic: "#"}]
directory: {users: {john: {roles: [trainer], groups: [b]}}}
""",
        HEAD.replace("policies: open", "policies: [{id: p, subject: '*', topic: '#', action: read}]"),
    )
    rules = config.built.rules
    far = Domain(
        nodes=("far-1",),
        through=("hub",),
        users={"bob": "john"},
        roles={"coach": "trainer"},
        groups={"a": "b"},
        attributes=("x",),
    )
    assert rules.domains == {"far": far, "other": Domain()}
    assert rules.policies is not None
    assert rules.policies.domains == rules.preferences.domains == rules.views.domains == rules.domains
    assert not any("trust" in text for _, text in config.warnings())


def test_believing_somebody_to_be_nobody_is_doubted() -> None:
    config = read("trust: {domains: {far: {roles: {coach: trainer}, attributes: [x]}}}\n")
    [told] = [text for _, text in config.warnings() if "trust" in text]
    assert told.startswith("`trust.domains.far.roles.coach` names the unknown role `trainer`; ")


def test_files_of_the_node_must_be_readable(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(HEAD + LINK)
    with pytest.raises(ConfigErrors) as wrong:
        load(file)
    assert [line.partition(": ")[2].split(" names")[0] for line in str(wrong.value).splitlines()] == [
        "`node.cert`",
        "`node.ca`",
    ]
    for name in ("n.pem", "ca.pem"):
        (tmp_path / name).touch()
    config = load(file)
    assert (config.node.cert, config.node.key, config.node.ca) == (tmp_path / "n.pem", None, tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("trusted: false, broker: {}", "has no effect with `broker`, which is never believed; remove it"),
        ("trusted: false, forward: subscriptions", "is of no use where nothing is believed that the other node says"),
        ("plain_backup: true", "is said where the other node connects; remove it here"),
        ("sign: true, trusted: false", "needs a trusted Tidegate node at the other end, over each connection"),
        ("trusted: false, sign: true", "`links[0].sign` needs a trusted Tidegate node at the other end"),
        ("sign: true, broker: {}", "`links[0].sign` needs a trusted Tidegate node at the other end"),
    ],
)
def test_links_to_nodes_that_are_not_trusted(entry: str, said: str) -> None:
    from tidegate.config import parse
    from tidegate.errors import TidegateError

    text = "version: 1\nnode: {name: a, cert: c, ca: c}\nlisteners: [{url: 'mqtt://127.0.0.1:1', anonymous: true}]\n"
    text += f"policies: open\nlinks: [{{from: main, to: far, via: ['mqtts://h:1'], peer: CN=x, {entry}}}]\n"
    with pytest.raises(TidegateError) as wrong:
        parse(text, "f.yaml")
    assert said in str(wrong.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("via: ['mqtts://h:1', 'mqtt://h:2'], peer: CN=x", "is not encrypted, and good for a backup only"),
        ("via: ['mqtts://h:1', 'mqtt://h:2'], peer: CN=x, failover: {restore: null}", "add `failover` with `restore`"),
        ("via: ['mqtts://h:1'], peer: listed", "is `listed`, and there is no `trust.accept`"),
        ("peer: listed", "is `listed`, and there is no `trust.accept`"),
        ("via: ['mqtt://h:1'], peer: listed, broker: {}", "is of no use for a foreign broker"),
    ],
)
def test_plain_backups_and_whoever_is_listed(entry: str, said: str) -> None:
    from tidegate.config import parse
    from tidegate.errors import TidegateError

    text = "version: 1\nnode: {name: a, cert: c, ca: c}\nlisteners: [{url: 'mqtt://127.0.0.1:1', anonymous: true}]\n"
    with pytest.raises(TidegateError) as wrong:
        parse(f"{text}policies: open\nlinks: [{{from: main, to: far, {entry}}}]\n", "f.yaml")
    assert said in str(wrong.value)
