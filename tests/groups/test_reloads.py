"""Which lists a coordinator holds as their members sent them, after a load."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.groups.model import Timeouts, Tri
from rebal.groups.reloads import has_whole_lists
from tests.groups.observed import NOW, group, member

SECOND = timedelta(seconds=1)
LOADED = NOW - 60 * SECOND


@pytest.mark.parametrize(
    ("rebalanced", "whole"), [(Tri.YES, True), (Tri.NO, False), (Tri.CANNOT_TELL, False)]
)
def test_dynamic_members_send_their_lists_in_the_next_rebalance(
    rebalanced: Tri, whole: bool
) -> None:
    assert has_whole_lists(group(member("a"), rebalanced=rebalanced)) is whole


@pytest.mark.parametrize(
    ("epoch", "joined", "generation", "compared", "whole"),
    [
        (0, None, None, True, True),  # never loaded
        (3, None, None, True, False),
        (3, LOADED + SECOND, None, True, False),  # the log's clock may be ahead
        (3, LOADED + 10 * SECOND, None, True, True),
        (3, None, NOW - 40 * SECOND, True, False),  # its session may still last
        (3, None, NOW - 46 * SECOND, True, False),
        (3, None, NOW - 51 * SECOND, True, True),
        (3, None, NOW - 51 * SECOND, False, False),  # by a clock that was not compared
    ],
)
def test_a_static_member_may_be_down_since_the_load(
    epoch: int, joined: Any, generation: Any, compared: bool, whole: bool
) -> None:
    static = member("a", instance_id="a", joined_at=joined, timeouts=Timeouts(session_ms=45_000))
    made = group(static, member("b"))
    coordinator = replace(made.group.coordinator, leader_epoch=epoch, loaded_at=LOADED)
    about = replace(made.group, coordinator=coordinator, generation_at=generation)
    assert has_whole_lists(replace(made, group=about, clock_compared=compared)) is whole
