"""The batches of a survey: few requests, and one timeout for a broker that is silent."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rebal.inspectors.errors import RequestError
from rebal.inspectors.kafka import survey
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.reload import LATEST
from rebal.inspectors.kafka.resources import Resources
from rebal.inspectors.kafka.wire import Deadline

NAMES = [f"g-{number}" for number in range(120)]


class Raw:
    """The part of `RawCluster` that batches use; `node` fails from the call `silent_from` on."""

    def __init__(self, silent_from: int = 99) -> None:
        self.calls = 0
        self._silent_from = silent_from

    def deadline(self) -> Deadline:
        return Deadline(1000)

    def node(self, broker: int, deadline: Deadline) -> object:
        self.calls += 1
        if self.calls >= self._silent_from:
            raise RequestError("TIMED_OUT", "no answer")
        return object()


def in_batches(raw: Raw, ask: Any) -> Mapping[str, Any]:
    return survey._in_batches(raw, 1, NAMES, ask)[0]  # type: ignore[arg-type]


def test_fifty_groups_share_a_request() -> None:
    sizes: list[int] = []

    def ask(_: Any, some: list[str], __: Deadline) -> dict[str, str]:
        sizes.append(len(some))
        return dict.fromkeys(some, "read")

    assert in_batches(Raw(), ask) == dict.fromkeys(NAMES, "read")
    assert sizes == [50, 50, 20]


def test_silent_broker_is_asked_once_and_all_its_other_groups_fail() -> None:
    raw = Raw(silent_from=2)
    found = in_batches(raw, lambda _, some, __: dict.fromkeys(some, "read"))
    assert raw.calls == 2
    assert [found[name] for name in NAMES[:50]] == ["read"] * 50
    assert {found[name].name for name in NAMES[50:]} == {"TIMED_OUT"}
    assert list(found) == NAMES


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("NOT_COORDINATOR", "moved"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "moved"),
        ("GROUP_AUTHORIZATION_FAILED", "failed"),
        ("GROUP_ID_NOT_FOUND", "left out"),
    ],
)
def test_groups_that_are_not_described_fail_or_are_read_again(
    code: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        survey,
        "describe_many",
        lambda _, __, some, ___: {one: RequestError(code, code) for one in some},
    )
    answers = survey._of_broker(Raw(), 1, ["g"])  # type: ignore[arg-type]
    assert answers.looks == []
    assert answers.moved == (["g"] if where == "moved" else [])
    assert [each.group_id for each in answers.failures] == (["g"] if where == "failed" else [])


def test_an_offset_below_zero_is_a_damaged_answer_of_its_partition_alone() -> None:
    parts = [
        SimpleNamespace(partition_index=0, error_code=0, offset=-7, leader_id=1),
        SimpleNamespace(partition_index=1, error_code=0, offset=7, leader_id=1),
    ]
    answer = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=parts)])
    node = SimpleNamespace(send=lambda *_, **__: answer)
    resources = Resources(cast(RawCluster, SimpleNamespace(node=lambda *_: node)))
    found = resources._of_leader(1, [("t", 0), ("t", 1)], LATEST, 0, Deadline(1000))
    damaged = found["t", 0]
    assert isinstance(damaged, RequestError)
    assert damaged.name == "CORRUPT_MESSAGE"
    assert found["t", 1] == 7
