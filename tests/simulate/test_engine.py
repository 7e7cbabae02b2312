"""Scenarios on the model and on the engine: the case study, roles, labels, shares, and whatever Hypothesis makes up."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, event, given, reject, settings

from simulate.spaces import World, worlds
from tidegate.config import Config, parse
from tidegate.errors import ConfigError
from tidegate.gate import RuleSet
from tidegate.scope import Identity
from tidegate.simulate.engine import EngineRun
from tidegate.simulate.explore import Unfinished, find_run, outcomes
from tidegate.simulate.run import Outcome
from tidegate.simulate.scenario import parse as scenario_of
from tidegate.simulate.scenario import read_scenario

HOME = """\
version: 1
node: {name: home}
scopes:
  I: {}
  H1: {parents: [I]}
  H2: {parents: [H1, H4]}
  H3: {parents: [H1]}
  H4: {}
listeners:
  - {url: "mqtt://127.0.0.1:1801", scope: I, anonymous: true}
  - {url: "mqtt://127.0.0.1:1802", scope: H2, anonymous: true}
  - {url: "mqtt://127.0.0.1:1803", scope: H3, anonymous: true}
  - {url: "mqtt://127.0.0.1:1804", scope: H4, anonymous: true}
policies: open
brokering: {preset: component}
monitors:
  - {id: A1, link: "H1->H3", only: DL_unlock, after: [AccessRequest, AccessGranted], reset: AccessDenied}
"""
# table 3.1
CLIENTS = {
    "MD": {"scope": "H4"},
    "SC": {"scope": "H2"},
    "DB": {"scope": "H2", "subscribes": ["MD_motion", "MD_no_motion"]},
    "DL": {"scope": "H3", "subscribes": ["DL_unlock", "DL_lock"]},
    "SP": {"scope": "I", "subscribes": ["#"], "no_local": True},
}
SAYS = {
    "MD_motion": "MD",
    "AccessRequest": "DB",
    "AccessGranted": "SP",
    "AccessDenied": "SP",
    "DL_unlock": "SC",
    "DL_lock": "SC",
}


@cache
def config_of(file: str) -> Config:
    return parse(file, "test.yaml")


def engine_run_of(file: str, clients: dict[str, Any], *steps: Any) -> EngineRun:
    return EngineRun.of(config_of(file), scenario_of({"clients": clients, "steps": list(steps)}))


def both(engine_run: EngineRun) -> Outcome:
    """What the engine does, which is an outcome of the model."""
    played = engine_run.run()
    assert find_run(engine_run.schema, engine_run.scenario.rounds, played) is not None, played
    return played


def topics(outcome: Outcome, client: str) -> list[str]:
    return [one.topic for one in outcome[f"client:{client}"]]


# the case study (scopes, 3.5)


def in_the_house(*published: str) -> EngineRun:
    steps = [each for topic in published for each in ({"client": SAYS[topic], "publish": topic}, "settle")]
    return engine_run_of(HOME, CLIENTS, *steps)


@pytest.mark.parametrize(
    ("published", "unlocked"),
    [
        (("AccessRequest", "AccessGranted", "DL_unlock"), 1),
        (("AccessRequest", "AccessGranted", "DL_unlock", "DL_unlock"), 1),
        (("AccessRequest", "AccessDenied", "AccessGranted", "DL_unlock"), 0),
        (("AccessGranted", "AccessRequest", "DL_unlock"), 0),
        (("DL_unlock",), 0),
    ],
)
def test_the_door_unlocks_exactly_when_a1_says_so(published: tuple[str, ...], unlocked: int) -> None:
    found = in_the_house(*published)
    played = both(found)
    assert topics(played, "DL").count("DL_unlock") == unlocked
    assert outcomes(found.schema, found.scenario.rounds) == {played}


def test_motion_never_leaves_the_private_domain() -> None:
    """By any sequence of three."""
    for published in itertools.product(SAYS, repeat=3):
        played = both(in_the_house(*published))
        assert "MD_motion" not in topics(played, "SP")
        assert topics(played, "DB").count("MD_motion") == published.count("MD_motion")


# the other presets


def test_roles_hear_what_they_may() -> None:
    file = """\
version: 1
node: {name: works}
listeners: [{url: "mqtt://127.0.0.1:1801", scope: plant, anonymous: true}]
directory:
  clients: {d1: {roles: [r1]}, d2: {roles: [r2]}, d3: {}}
policies: open
brokering:
  preset: rbac
  bus: plant
  roles: {r1: {pub: [a], sub: [b]}, r2: {pub: [b], sub: [a]}}
"""
    clients = {name: {"scope": "plant", "subscribes": "#"} for name in ("d1", "d2")}
    steps = [{"client": client, "publish": topic} for client in clients for topic in "ab"]
    found = engine_run_of(file, clients, *steps)
    played = both(found)
    assert [topics(played, name) for name in clients] == [["b"], ["a"]]
    assert {scope for _, came in played.heard for scope, _ in came} == {"scope:r1.sub", "scope:r2.sub"}
    with pytest.raises(ConfigError, match="`client:d3` cannot be connected to `plant`"):
        engine_run_of(file, {"d3": {"scope": "plant"}})


def test_labels_only_rise_and_clients_without_one_are_refused() -> None:
    file = """\
version: 1
node: {name: works}
scopes: {A: {}, B: {}}
links: [{from: A, to: B}]
listeners: [{url: "mqtt://127.0.0.1:1801", scope: A, anonymous: true}]
directory: {users: {mary: {password: "plain:x"}}, clients: {low: {}, high: {scopes: [B]}}}
policies: open
brokering:
  preset: blp
  labels: [public, secret]
  assign:
    - {client: "client:low", in: public, out: public}
    - {client: "client:high", in: secret, out: secret}
    - {client: "user:mary", in: secret, out: public}
    - {link: "A->B", type: public}
    - {link: "B->A", type: public}
"""
    clients = {
        "low": {"scope": "A", "subscribes": "#"},
        "high": {"scope": "B", "subscribes": "#"},
        "hers": {"scope": "B", "subscribes": "#", "user": "mary"},
    }
    played = both(engine_run_of(file, clients, {"client": "low", "publish": "a"}, {"client": "high", "publish": "b"}))
    assert [topics(played, name) for name in clients] == [["a"], ["a", "b"], ["a"]]
    for wrong, why in (
        ({"x": {"scope": "A"}}, "no label is assigned to you"),
        ({"high": {"scope": "A"}}, "the directory lets it connect to B"),
        ({"x": {"scope": "A", "user": "mery"}}, "unknown user `mery`"),
    ):
        with pytest.raises(ConfigError, match=why):
            engine_run_of(file, wrong)


def test_what_is_shared_has_other_names_and_answers_changes_of_subscriptions() -> None:
    file = """\
version: 1
node: {name: gyms}
scopes: {gym: {}, brand: {}}
links:
  - from: gym
    to: brand
    share:
      - {topic: "+/speed", direction: both, local_prefix: "", remote_prefix: "MyGym/"}
listeners: [{url: "mqtt://127.0.0.1:1801", scope: gym, anonymous: true}]
policies: open
"""
    clients = {"tr1": {"scope": "gym", "subscribes": "#"}, "hq": {"scope": "brand"}}
    played = both(
        engine_run_of(
            file,
            clients,
            {"client": "tr1", "publish": "tr1/speed"},
            {"client": "hq", "subscribe": "MyGym/#"},
            {"client": "tr1", "publish": "tr1/speed"},
            {"client": "tr1", "publish": "tr1/pulse"},
            {"client": "hq", "publish": "MyGym/tr1/speed"},
            {"client": "hq", "unsubscribe": "MyGym/#"},
            {"client": "tr1", "publish": "tr1/speed"},
        )
    )
    assert topics(played, "hq") == ["MyGym/tr1/speed"] * 2
    assert topics(played, "tr1") == ["tr1/speed", "tr1/speed", "tr1/pulse", "tr1/speed", "tr1/speed"]


def test_policies_are_left_out_of_both() -> None:
    file = HOME.replace("policies: open", "policies: []\npreferences: [{user: mary, topic: '#', when: 'false'}]")
    file = file.replace("brokering:", "directory: {users: {mary: {password: 'plain:x'}}}\nbrokering:")
    found = engine_run_of(file, CLIENTS, {"client": "MD", "publish": "MD_motion"})
    assert found.left_out == ("policies", "preferences")
    assert topics(both(found), "DB") == ["MD_motion"]
    assert in_the_house().left_out == ()


# whatever there is


def staged(world: World) -> EngineRun:
    schema, placed = world.model()
    return EngineRun(
        schema=schema,
        scenario=placed,
        written=world.scenario,
        node="n",
        rules=RuleSet(space=world.space, brokering=world.brokering, monitors=world.monitors),
        left_out=(),
        identities={link: Identity(principal=link[1]) for link in world.scenario.sub},
        presences=world.presences,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(most=3))
def test_what_the_engine_delivers_is_an_outcome_of_the_model(world: World) -> None:
    found = staged(world)
    played = found.run()
    try:
        run = find_run(found.schema, found.scenario.rounds, played, bound=3000)
    except Unfinished:
        reject()
    assert run is not None, played
    event(f"{min(sum(len(came) for _, came in played.heard), 5)} deliveries")


# files


def test_a_scenario_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump({"clients": CLIENTS, "steps": [{"client": "MD", "publish": "MD_motion"}]}))
    assert read_scenario(file) == scenario_of({"clients": CLIENTS, "steps": [{"client": "MD", "publish": "MD_motion"}]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"clients: {}", "scenario.yaml:1: `steps` is missing; add it"),
        (b"clients: {\n", "scenario.yaml:"),
        (b"\xff", "not UTF-8 text"),
        (b"", "is empty"),
        (b"clients: {}\nclients: {}\nsteps: []\n", "scenario.yaml:2:"),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_scenario(file)
    assert message in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_scenario(tmp_path / "none.yaml")
