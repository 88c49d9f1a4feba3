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
def test_every_line_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    total: Counter[tuple[str, str]] = Counter()
    exact: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    for case in lines(FOLDER):
        key = (case["class"], case["assignor"])
        total[key] += 1
        got = assign(case["assignor"], spec_of(case))
        if got == expected(case):
            exact[key] += 1
        else:
            wrong.append(f"{case['case']} {case['assignor']}")
    with capsys.disabled():
        print(f"\noracle {FOLDER}: exact / total")
        for class_ in sorted({class_ for class_, _ in total}):
            counts = (
                f"{name} {exact[class_, name]}/{total[class_, name]}"
                for name in NAMES
                if total[class_, name]
            )
            print(f"  {class_:16}" + "   ".join(counts))
        print(f"  {'all':16}{exact.total()}/{total.total()}")
    assert total, f"no *.jsonl.gz in {FOLDER}"
    assert not wrong, f"{len(wrong)} differ from Java: {', '.join(wrong[:20])}"
