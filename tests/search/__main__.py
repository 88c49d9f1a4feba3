"""`python -m tests.search --histories N [--seed S | --random [R]] --shard i/n [--mutation K]`.

The seeds are S, S + 1, … or drawn from R, which is drawn and printed where it is not given.
"""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from secrets import randbelow

from tests.search.mutations import MUTATIONS
from tests.search.run import Found, Report, random_seeds, search, seeds


def main() -> int:
    """Search, print each counter-example and the figures; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.search", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one's seed")
    parser.add_argument("--random", type=int, nargs="?", const=randbelow(10**12), metavar="R")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the part of the histories")
    parser.add_argument("--mutation", type=int, choices=sorted(MUTATIONS), metavar="K")
    parser.add_argument("--whole", action="store_true", help="do not shrink counter-examples")
    given = parser.parse_args()
    number, of = (int(part) for part in given.shard.split("/"))
    mutation = MUTATIONS[given.mutation]() if given.mutation else contextlib.nullcontext()
    printed: list[Found] = []

    def progress(report: Report) -> None:
        """Print the counter-examples as they are found, and the figures between them on stderr."""
        for one in report.found[len(printed) :]:
            print(f"\n{one}", flush=True)
            printed.append(one)
        print(report, file=sys.stderr, flush=True)

    with mutation:
        shard = number - 1, of
        drawn: Sequence[int] = seeds(given.histories, given.seed, shard)
        if given.random is not None:
            print(f"seeds drawn at random from {given.random}", flush=True)
            drawn = random_seeds(given.histories, given.random, shard)
        report = search(drawn, shrinks=not given.whole, progress=progress)
    print(report)
    return int(bool(report.found))


if __name__ == "__main__":
    sys.exit(main())
