"""Every line of the oracle, exactly: what the Java client 4.1.1 returned, list order included.

REBAL_ORACLE names another folder of the same form (`*.jsonl.gz`); its lines run instead.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from rebal.groups.assignors import NAMES, assign
from tests.assignors.oracle import expected, lines, spec_of

FOLDER = Path(os.environ.get("REBAL_ORACLE") or Path(__file__).parents[1] / "data" / "oracle")


@pytest.mark.timeout(600)
def test_every_line_is_exact() -> None:
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for case in lines(FOLDER):
        total[case["assignor"]] += 1
        if assign(case["assignor"], spec_of(case)) != expected(case):
            wrong.append(f"{case['case']} {case['assignor']}")
    assert total.keys() == set(NAMES), f"too few lines in {FOLDER}"
    assert not wrong, f"{len(wrong)} differ from Java: {', '.join(wrong[:20])}"
