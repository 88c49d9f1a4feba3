"""What a member's files say of its next start, beside the list."""

from __future__ import annotations

from typing import Any

from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import DeclaredAssignors, Evidence, Source
from tests.planner.builder import group_of


def declared(*files: dict[str, Any]) -> list[DeclaredAssignors | None]:
    snapshot = group_of({"members": [{"id": "a"}, {"id": "b"}]})
    seen = [
        Declared(
            where=f"file-{number}",
            group_id="checkout",
            list=("range",),
            list_set=True,
            evidence=Evidence(source=Source.CONFIG_FILE, detail=f"file-{number}"),
            **more,
        )
        for number, more in enumerate(files)
    ]
    return [member.declared for member in merge(snapshot, seen).members]


def test_settings_and_surge_reach_the_member() -> None:
    one, other = declared(
        {"client_id": "a", "classic_only": ("session.timeout.ms",), "max_surge": "25%"}
    )
    assert one is not None
    assert (one.classic_only, one.max_surge) == (("session.timeout.ms",), "25%")
    assert other is None


def test_files_that_differ_in_a_timeout_only_still_speak_of_the_list() -> None:
    found = declared({"classic_only": ("session.timeout.ms",)}, {"max_surge": "0"})
    for one in found:
        assert one is not None
        assert one.list == ("range",)
        assert one.classic_only == ("session.timeout.ms",)
        assert one.max_surge == "0"


def test_of_two_deployments_the_one_that_surges_counts() -> None:
    for one in declared({"max_surge": "0"}, {"max_surge": "1"}):
        assert one is not None
        assert one.max_surge == "1"
