"""The tables of both captures, kept by one commit and compared row by row with another's.

    python -m tests.fleet.net keep FILE
    python -m tests.fleet.net compare FILE

Each capture is read from its topic, from its log, and from both; in one scan and in twelve.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fleet.conftest import CAPTURES, TIMEOUTS
from tests.fleet.timeline_input import Scans, captured_records, captured_requests, in_order, part_of

_SCANS = (1, 12)
_SHOWN = 10


def told() -> dict[str, list[str]]:
    """Return the rows, as JSON, by capture, mode, count of scans and table."""
    found = {}
    for folder in (CAPTURES, TIMEOUTS):
        rows = {"topic": list(captured_records(folder)), "log": list(captured_requests(folder))}
        rows["topic and log"] = rows["topic"] + rows["log"]
        recorded = {row["group_id"] for row in rows["topic"]}
        for mode, given in rows.items():
            ordered = in_order(given)
            for count in _SCANS:
                scans = Scans(recorded=recorded if "topic" in mode else ())
                for number in range(count):
                    scans.scan(part_of(ordered, number, count))
                for table, made in scans.tables().items():
                    where = f"{folder.name}, {mode}, {count} scans, {table}"
                    found[where] = [json.dumps(row, default=str, sort_keys=True) for row in made]
    return found


def differences(before: dict[str, list[str]], now: dict[str, list[str]]) -> Iterator[str]:
    """Yield a line for each row that only one of the two has, in its place."""
    for where in sorted(before.keys() | now.keys()):
        old, new = before.get(where, []), now.get(where, [])
        for number in range(max(len(old), len(new))):
            pair = old[number : number + 1], new[number : number + 1]
            if pair[0] != pair[1]:
                yield f"{where}, row {number}:\n  - {pair[0]}\n  + {pair[1]}"


def main() -> int:
    """Return 0 where the tables are kept, or the same as those in the file."""
    order, file = sys.argv[1], Path(sys.argv[2])
    found = told()
    rows = sum(map(len, found.values()))
    if order == "keep":
        file.write_text(json.dumps(found), encoding="utf-8")
        print(f"{rows} rows kept")
        return 0
    lines = list(differences(json.loads(file.read_text(encoding="utf-8")), found))
    print("\n".join(lines[:_SHOWN]))
    print(f"{rows} rows, {len(lines)} differ")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
