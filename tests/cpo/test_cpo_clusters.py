"""The registry of persistence clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cpo import PersistenceCluster
from penstock.errors import BadArgument, ClusterExists, NoSuchCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cpo import Cpo

GROUPS = {"g1": ["h1:1", "h2:1", "h3:1"], "g2": ["h1:2", "h2:2", "h3:2"]}


def test_a_registered_cluster_is_found_by_its_name(cpo: Cpo) -> None:
    """A plog id names its cluster and group: from there a client must get to the servers."""
    cpo.register_cluster("main", GROUPS)
    cluster = cpo.cluster("main")
    assert cluster == PersistenceCluster("main", {"g1": ("h1:1", "h2:1", "h3:1"), "g2": ("h1:2", "h2:2", "h3:2")})
    assert cluster.groups["g2"][0] == "h1:2"


def test_a_found_cluster_cannot_be_changed_by_accident(cpo: Cpo) -> None:
    """All callers that asked for it share it."""
    cpo.register_cluster("main", GROUPS)
    with pytest.raises(TypeError):
        cpo.cluster("main").groups["g3"] = ()  # type: ignore[index]


def test_registering_the_same_again_does_nothing(cpo: Cpo) -> None:
    """Every server registers its cluster when it starts; the order in which it lists the groups means nothing."""
    cpo.register_cluster("main", GROUPS)
    cpo.register_cluster("main", dict(reversed(GROUPS.items())))
    assert cpo.clusters() == ["main"]


def test_another_cluster_under_a_taken_name_is_refused(cpo: Cpo) -> None:
    """Plogs of the first would be looked for on servers of the second."""
    cpo.register_cluster("main", GROUPS)
    with pytest.raises(ClusterExists, match="main"):
        cpo.register_cluster("main", {"g1": ["h1:1"]})
    assert set(cpo.cluster("main").groups) == {"g1", "g2"}


def test_an_unknown_cluster_is_an_error_of_its_own(cpo: Cpo) -> None:
    """A misspelt name is the most likely mistake in a configuration."""
    with pytest.raises(NoSuchCluster, match="mian"):
        cpo.cluster("mian")


def test_clusters_are_listed_by_name(cpo: Cpo) -> None:
    """The list is what a human chooses from."""
    assert cpo.clusters() == []
    cpo.register_cluster("west", GROUPS)
    cpo.register_cluster("east", GROUPS)
    assert cpo.clusters() == ["east", "west"]


@pytest.mark.parametrize("name", ["", "a/b", ".a", "a" * 256, "ä"])
def test_a_name_that_no_plog_id_could_carry_is_refused(cpo: Cpo, name: str) -> None:
    """Cluster and group are parts of every plog id."""
    with pytest.raises(BadArgument):
        cpo.register_cluster(name, GROUPS)
    with pytest.raises(BadArgument):
        cpo.cluster(name)
    with pytest.raises(BadArgument):
        cpo.register_cluster("main", {name: ["h:1"]})


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"g": []},
        {"g": "host:1"},
        {"g": ["h:1", ""]},
        {"g": ["h:1", "h:2", "h:1"]},
        {f"group-{n}": [f"host-{n}:{m}" for m in range(100)] for n in range(100)},
    ],
    ids=["no groups", "no servers", "text for a list", "empty address", "server twice", "too large"],
)
def test_groups_that_cannot_keep_a_plog_are_refused(cpo: Cpo, groups: Mapping[str, Sequence[str]]) -> None:
    """A mistake here would be found only when the first server fails."""
    with pytest.raises(BadArgument):
        cpo.register_cluster("main", groups)
    assert cpo.clusters() == []
