"""Carry out hostile runs and print each kind of fault once: `--runs`, `--seed`.

A single run (`--seed SEED --runs 1`) prints what it said.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.hostile.runs import Range, draw


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        place = Range(Path(folder))
        for seed in range(asked.seed, asked.seed + asked.runs):
            run = draw(seed, place)
            end = place.run(run)
            if end.fault and end.fault not in faults:
                words = [word[:60] for word in run.words]
                print(f"{seed}: {end.fault}\n    {words} {run.env} {run.way}", flush=True)
            if end.fault:
                faults[end.fault] += 1
            if asked.runs == 1:
                print(end.code, end.said[-3000:], sep="\n")
    print(f"{asked.runs} runs from seed {asked.seed}, {faults.total()} faults")
    for fault, count in faults.most_common():
        print(f"{count:6} {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
