"""The examples with several scopes are what the seed's figures show, and their pictures are what `tidegate flow` draws.

That their READMEs can be followed is tested in `test_played`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs.pages import ROOT
from flow import figures
from processes import from_file, on_uvloop
from tidegate.config import Config, ConfigErrors, load
from tidegate.errors import ConfigError
from tidegate.flow.graph import ConnectionGraph
from tidegate.flow.reach import Reach
from tidegate.flow.route import shortest
from tidegate.flow.watch import connection_graph

EXAMPLES = ROOT / "examples"
TIDEGATE = Path(sys.executable).with_name("tidegate")
PICTURES = {
    "smart-home/home.svg": "smart-home/tidegate.yaml",
    "components/components.svg": "components/tidegate.yaml",
    "components/forest.svg": "components/forest.yaml",
    "labels/labels.svg": "labels/tidegate.yaml",
    "roles/roles.svg": "roles/tidegate.yaml",
}


def loaded(name: str) -> Config:
    return load(EXAMPLES / name / "tidegate.yaml")


def graph(config: Config) -> ConnectionGraph:
    rules = config.built.rules
    return connection_graph(rules.space, rules.brokering, config.built.presences)


def hierarchy(config: Config) -> dict[str, tuple[str, ...]]:
    """Parents as the figures have them."""
    return figures.entities({name: " ".join(scope.parents) for name, scope in config.scopes.items()})


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures(picture: str) -> None:
    command = [TIDEGATE, "flow", EXAMPLES / PICTURES[picture], "--format", "svg"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == (EXAMPLES / picture).read_text(), "draw it again with `tidegate flow --format svg`"
    assert Path(picture).name in (EXAMPLES / picture).with_name("README.md").read_text()


def test_components_are_those_of_the_figures() -> None:
    config = loaded("components")
    assert hierarchy(config) == figures.HIERARCHY
    ours, theirs = graph(config), figures.component(figures.COMPONENTS)
    assert sorted(map(str, ours.links)) == sorted(map(str, theirs.links))
    assert hierarchy(load(EXAMPLES / "components/forest.yaml")) == figures.CONJOINED


def test_the_other_hierarchy_is_refused_because_of_its_two_ways() -> None:
    file = EXAMPLES / "components/acyclic.yaml"
    with pytest.raises(ConfigErrors) as refused:
        load(file)
    (problem,) = refused.value.problems
    assert "two paths from `D` to `A`" in str(problem)
    assert file.read_text().splitlines()[problem.line - 1].strip() == "D: { parents: [B, C] }"
    written = yaml.safe_load(file.read_text())["scopes"]
    parents = {name: " ".join(scope.get("parents", ())) for name, scope in written.items()}
    assert figures.entities(parents) == figures.DIRECTED_ACYCLIC


def test_the_home_is_that_of_the_figure() -> None:
    config = loaded("smart-home")
    assert hierarchy(config) == figures.HOME_SCOPES
    places = {name: " ".join(client.scopes or ()) for name, client in config.directory.clients.items()}
    extra = {"hub": "H2", "cloud": "I"}  # which the README says are not in the study
    assert figures.entities(places, "client") == figures.HOME_DEVICES | figures.entities(extra, "client")


def test_motion_can_only_get_out_in_somebodys_own_words() -> None:
    """What the README says of routes and paths: only devices of H2 are in between."""
    found = graph(loaded("smart-home"))
    assert shortest(found, "client:MD", "scope:I") is None
    path = shortest(found, "client:MD", "scope:I", paths=True)
    assert path is not None
    assert "client:DB" in path.entities
    for name in ("client:DB", "client:hub"):
        found.leave(name)
    assert shortest(found, "client:MD", "scope:I", paths=True) is None


@on_uvloop
async def test_a_change_that_lets_motion_out_is_refused_while_the_node_runs(tmp_path: Path) -> None:
    text = (EXAMPLES / "smart-home/tidegate.yaml").read_text().partition("\ntests:")[0]
    for port in (1883, 1884, 1885, 1886):
        text = text.replace(f":{port}", f":P{port}_PORT")
    async with from_file(tmp_path, text.replace(", data: var/data", "")) as node:
        before = node.node.status()["rules"]
        right, wrong = "MD: { user: MD, scopes: [H4] }", "MD: { user: MD, scopes: [H4, H2] }"
        written = node.file.path.read_text()
        assert right in written
        with pytest.raises(ConfigError, match="client:MD -> scope:H2 -> scope:H1 -> scope:I"):
            await node.reload(written.replace(right, wrong))
        assert node.node.status()["rules"] == before
        assert (await node.reload(written))["reloaded"]


def test_nobody_hears_above_its_label_whoever_tells() -> None:
    """Also by paths: labels only rise on the way (scopes, BLP-2)."""
    config = loaded("labels")
    labels = config.brokering.labels
    assert labels == ("unclassified", "confidential", "secret", "top-secret")
    says = {one.client: labels.index(one.inward) for one in config.built.presences}
    hears = {one.client: labels.index(one.outward) for one in config.built.presences}
    assert len(says) == 6
    reach = Reach(graph(config), paths=True)
    found = {(source, target) for source in says for target in hears if reach.reaches(source, target)}
    assert ("client:sensor", "client:archive") in found
    assert all(says[source] <= hears[target] for source, target in found)


def test_roles_are_joined_as_in_the_figure() -> None:
    config = loaded("roles")
    assert config.brokering.bus == "plant"
    roles = tuple(config.brokering.roles or ())
    members = {name: config.directory.users[name].roles[0] for name in config.directory.clients}
    theirs = figures.rbac(roles, members)
    reach, wanted = Reach(graph(config)), Reach(theirs)
    for source in members:
        for target in members:
            one, other = f"client:{source}", f"client:{target}"
            assert reach.reaches(one, other) == wanted.reaches(one, other), (source, target)
    assert set(roles) == {"machine", "operator", "visitor"}
