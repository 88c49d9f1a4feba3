"""A sealed document names the field that was edited, and is read in any layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from rebal.groups.errors import DocumentError
from rebal.groups.snapshot.documents import check_seal, checksum, text_of
from rebal.planner.plan import dump_plan, load_plan
from tests.planner.plans import RANGE, m, plan

PLAN = plan([m(f"c-{number}", RANGE) for number in range(3)])
BODY: dict[str, Any] = json.loads(dump_plan(PLAN, "json"))


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path to each text, number and null."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from places(each, (*path, key))
    else:
        yield path


def changed(path: tuple[str | int, ...]) -> dict[str, Any]:
    body = deepcopy(BODY)
    inner: Any = body
    for key in path[:-1]:
        inner = inner[key]
    was = inner[path[-1]]
    inner[path[-1]] = f"{was}x" if isinstance(was, str) else "x"
    return body


def field_of(path: tuple[str | int, ...]) -> str:
    """Return the field that a message names for this place."""
    match path:
        case ("steps", int(number), str(name), *_):
            return f"`steps[{number}].{name}`"
        case (str(name), int(number), *_) if isinstance(BODY[name][number], dict):
            return f"`{name}[{number}]`"
    return f"`{path[0]}`"


def test_every_single_edit_is_found_and_its_field_is_named() -> None:
    found = [path for path in places(BODY) if path[0] not in ("schema", "checksum")]
    assert len(found) > 200
    for path in found:
        with pytest.raises(DocumentError) as error:
            check_seal(changed(path), "a.plan.yaml")
        assert f"a.plan.yaml: {field_of(path)} has changed" in str(error.value), path


@pytest.mark.parametrize("key", [key for key in BODY if key not in ("schema", "checksum")])
def test_a_removed_and_an_added_field_are_named(key: str) -> None:
    with pytest.raises(DocumentError, match="has changed"):
        check_seal({name: value for name, value in BODY.items() if name != key}, "a")
    with pytest.raises(DocumentError, match="`more` has changed"):
        check_seal(BODY | {"more": 1}, "a")
    with pytest.raises(DocumentError, match=r"`steps\[\]` has changed"):
        check_seal(BODY | {"steps": BODY["steps"][:1]}, "a")


def test_layout_order_and_format_do_not_count() -> None:
    backwards = dict(reversed(BODY.items()))
    for text in (json.dumps(BODY), json.dumps(backwards, indent=7)):
        assert load_plan(text, "json") == PLAN
    kept = dump_plan(PLAN, "yaml")
    assert load_plan(kept.replace("\n", "\n# a note\n", 1), "yaml") == PLAN
    assert load_plan(text_of(yaml.safe_load(kept), "json"), "json") == PLAN


def test_a_plan_without_its_checksum_is_refused() -> None:
    body = {name: value for name, value in BODY.items() if name != "checksum"}
    with pytest.raises(DocumentError, match=r"p: the field `checksum` is missing"):
        load_plan(json.dumps(body), "json", "p")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda body: body["steps"][1].update(id=3), "steps: numbered [1, 3], expected 1, 2"),
        (lambda body: body["steps"].reverse(), "steps: numbered [2, 1], expected 1, 2"),
        (lambda body: body.update(next_step=5), "next_step: there is no step 5"),
        (lambda body: body.update({"from": "SOMETIMES"}), "from: invalid enum value"),
        (lambda body: body["steps"][0].update(kind="at once"), "kind: invalid enum value"),
    ],
)
def test_a_sealed_plan_that_makes_no_sense_is_refused(
    damage: Callable[[dict[str, Any]], object], message: str
) -> None:
    body = deepcopy(BODY)
    damage(body)
    body["checksum"] = checksum(body)
    with pytest.raises(DocumentError) as error:
        load_plan(json.dumps(body), "json", "p")
    assert message in str(error.value)


def test_numbers_may_be_written_as_other_json_tools_do() -> None:
    text = json.dumps(BODY).replace(".0,", ",").replace(".0}", "}")
    assert text != json.dumps(BODY)
    assert load_plan(text, "json") == PLAN


@pytest.mark.parametrize("name", ["topics", "subscribed_topics", "owned_partitions", "lag"])
def test_names_of_clients_and_topics_may_be_names_of_fields(name: str) -> None:
    members = [m("a", family=None) | {"topics": [name], "owned": {name: "0-3"}}]
    made = plan(members, families={"a": "java", name: "java"}, ignore={"RB901": "x"})
    for form in ("json", "yaml"):
        assert load_plan(dump_plan(made, form), form) == made


@pytest.mark.parametrize("damaged", ["", "a b : c", "x:1"])
def test_a_damaged_checksum_is_named(damaged: str) -> None:
    with pytest.raises(DocumentError, match="`checksum` has changed"):
        check_seal(BODY | {"checksum": damaged}, "a")
