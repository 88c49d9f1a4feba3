"""Run every bench, or those named: `python -m bench [help_time] [assignors] …`."""

import platform
import sys
from importlib import import_module

BENCHES = (
    "help_time",
    "lazy_imports",
    "assignors",
    "simulate_bench",
    "rehearsal_bench",
    "inspect_probe",
    "groups_bench",
    "fleet_bench",
    "fleet_log",
    "fleet_memory",
    "standstill",
)


def main() -> int:
    wanted = sys.argv[1:] or list(BENCHES)
    unknown = set(wanted) - set(BENCHES)
    if unknown:
        print(f"unknown bench {', '.join(sorted(unknown))}; known: {', '.join(BENCHES)}")
        return 2
    print(f"Python {platform.python_version()}, {platform.machine()}; median (min–max)")
    missed = 0
    for name in wanted:
        for row in import_module(f"bench.{name}").rows():
            print(row.text(), flush=True)
            missed += not row.holds
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
