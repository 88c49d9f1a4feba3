"""No test asserts that something is fast: `bench` measures, the tests count calls."""

import ast
from pathlib import Path

import pytest

from tests.house.modules import ROOT, files, tree

CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time"}


def reads_a_clock(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and isinstance(each.func.value, ast.Name)
        and each.func.value.id == "time"
        and each.func.attr in CLOCKS
        for each in ast.walk(node)
    )


def limits_a_duration(node: ast.AST) -> bool:
    """Return whether the node asserts `time.monotonic() - began < LIMIT`.

    A lower bound (`> 30`) holds on a slow machine too; a deadline of a waiting loop has no `-`.
    """
    return isinstance(node, ast.Assert) and any(
        isinstance(each, ast.Compare)
        and isinstance(each.ops[0], ast.Lt | ast.LtE)
        and isinstance(each.left, ast.BinOp)
        and isinstance(each.left.op, ast.Sub)
        and reads_a_clock(each.left)
        for each in ast.walk(node)
    )


def limits(path: Path) -> list[str]:
    found = [node for node in ast.walk(tree(path)) if limits_a_duration(node)]
    return [f"{path.relative_to(ROOT)}:{node.lineno}" for node in found if hasattr(node, "lineno")]


def test_no_test_asserts_an_upper_limit_of_elapsed_time() -> None:
    assert [found for path in files("tests") for found in limits(path)] == []


@pytest.mark.parametrize(
    ("text", "limited"),
    [
        ("assert time.monotonic() - began < 5", True),
        ("assert time.perf_counter() - began <= limit, 'slow'", True),
        ("assert time.monotonic() - began > 30", False),
        ("assert time.monotonic() < deadline, 'nothing committed'", False),
    ],
)
def test_an_upper_limit_is_told_from_a_deadline(text: str, limited: bool) -> None:
    assert limits_a_duration(ast.parse(text).body[0]) is limited
