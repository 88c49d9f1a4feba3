"""Carry out hostile runs and print each kind of fault once: `--runs`, `--seed`, `--only SEED`."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.hostile.runs import Range, draw


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        place = Range(Path(folder))
        seeds = range(asked.seed, asked.seed + asked.runs) if asked.only is None else [asked.only]
        faults: Counter[str] = Counter()
        codes: Counter[int | None] = Counter()
        slowest, largest = (0.0, 0), (0, 0)
        begin = time.monotonic()
        for done, seed in enumerate(seeds, 1):
            run = draw(seed, place)
            end = place.run(run)
            codes[end.code] += 1
            slowest = max(slowest, (end.seconds, seed))
            largest = max(largest, (end.kilobytes, seed))
            if end.fault:
                faults[end.fault] += 1
                if faults[end.fault] <= 2:
                    words = [word[:60] for word in run.words]
                    print(f"{seed}: {end.fault}\n    {words} {run.env} {run.way}", flush=True)
            if asked.only is not None:
                print(end.code, end.fault, end.said[-3000:], sep="\n")
            if done % 1000 == 0 or done == len(seeds):
                print(
                    f"{done} runs, {time.monotonic() - begin:.0f} s, {faults.total()} faults, "
                    f"slowest {slowest}, largest {largest} kB, exit codes {dict(codes)}",
                    flush=True,
                )
        for fault, count in faults.most_common():
            print(f"{count:6} {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
