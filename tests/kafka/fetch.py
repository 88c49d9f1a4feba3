"""`python -m tests.kafka.fetch`: fetch and build all that the live tests need, if they will run."""

import sys

from tests.conftest import why_not_live
from tests.fleet import stores
from tests.kafka import clients, jars


def main() -> int:
    reason = why_not_live()
    if reason:
        print(f"nothing to fetch: {reason}")
        return 0
    try:
        jars.prepare(print)
        clients.prepare()
        stores.prepare(print)
    except jars.ToolError as error:
        # The live tests say so again, and fail.
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
