"""What rejected clients are called where the advice is to start them again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rebal.planner.admission.rejected import member_of, still_out
from rebal.planner.plan import Plan
from rebal.planner.verification.verify import verify
from tests.planner.looks import app, look

AUTOMATIC = "consumer-checkout-1"


@pytest.mark.parametrize(
    ("client", "other", "known"),
    [(AUTOMATIC, "audit", False), ("orders", "audit", True), ("orders", "orders", False)],
)
def test_a_client_id_that_others_have_names_no_member(
    client: str, other: str, *, known: bool
) -> None:
    out = [{"client": client}, {"client": other, "host": "/10.0.0.2"}]
    out = [{**one, "list": ["range"]} for one in out]
    seen = look(1, [{**app(1, joined=1), "client": client}], refusals=out)
    assert (member_of(seen, seen.refusals[0]) is not None) is known
    assert (seen.refusals[0] in still_out(seen)) is not known, "it is back"


def names(plan: Plan, out: dict[str, Any], host: str, *here: str) -> tuple[str, ...]:
    """Names in the advice when a client from this address is out and `here` are its namesakes."""
    members = [app(1, 2, list=["cooperative-sticky", "range"]), app(2, list=["range"])]
    refusal = {"list": ["cooperative-sticky"], "at": 9, **out}
    seen = look(9.1, members, refusals=[refusal])
    renamed = [
        replace(one, client_id=out["client"], host=place)
        for one, place in zip(seen.members, here, strict=False)
    ]
    members_now = (*renamed, *seen.members[len(renamed) :])
    (one,) = seen.refusals
    seen = replace(seen, members=members_now, refusals=(replace(one, host=host),))
    made = verify(plan, [], seen)
    assert made.advice.action == "start"
    assert made.next.startswith(f"start {made.advice.names[0]} with")
    return made.advice.names


@pytest.mark.parametrize(
    ("out", "host", "here", "name"),
    [
        ({"client": AUTOMATIC}, "/10.0.0.9", (), f"{AUTOMATIC} (10.0.0.9)"),
        ({"client": AUTOMATIC}, "", (), AUTOMATIC),
        ({"client": AUTOMATIC, "instance": "pod-3"}, "/10.0.0.9", ("/10.0.0.1",), "pod-3"),
        ({"client": "orders"}, "/10.0.0.9", ("/10.0.0.1",), "orders (10.0.0.9)"),
        ({"client": "orders"}, "/10.0.0.9", (), "orders"),
        ({"client": ""}, "/10.0.0.9", (), "a client (10.0.0.9)"),
    ],
)
def test_rejected_client_has_its_address_where_its_name_is_shared(
    plan: Plan, out: dict[str, str], host: str, here: tuple[str, ...], name: str
) -> None:
    assert names(plan, out, host, *here) == (name,)
