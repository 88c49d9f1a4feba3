"""Really captured traffic (tests/data/captures, or the folder that REBAL_CAPTURES names)."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parent.parent / "data" / "captures"


class Captures:
    """The captured files, read line by line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def requests(self, *names: str) -> Iterator[dict[str, Any]]:
        """The completed requests of these API names, in the order of the log."""
        decoder = json.JSONDecoder()
        with gzip.open(self.folder / "kafka-request.log.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                if not any(f'"requestApiKeyName":"{name}"' in line for name in names):
                    continue
                stamp, _, rest = line.partition("] ")
                body = decoder.raw_decode(rest.partition("Completed request:")[2])[0]
                yield {"stamp": stamp.lstrip("["), **body}

    def offsets_topic(self) -> Iterator[dict[str, Any]]:
        """The records of `__consumer_offsets`."""
        path = self.folder / "consumer_offsets.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    @cached_property
    def _truth(self) -> Any:
        return self.document("truth.json")

    @property
    def bundled(self) -> bool:
        """Is it the story that is known by its groups' names."""
        return self.folder == DATA

    def start_of(self, group_id: str, client_id: str, request: dict[str, Any]) -> Any:
        """The start of the process that made this request, as truth.json has it.

        Streams puts an ending of its own behind the client ids that it is given.
        """
        told = datetime.strptime(request["stamp"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
        names = (client_id, client_id.partition("-StreamThread-")[0])
        *_, last = (
            event
            for event in sorted(self._truth["groups"][group_id]["timeline"], key=itemgetter("t_ms"))
            if event["action"] == "start"
            and event["client_id"] in names
            and event["t_ms"] <= told.timestamp() * 1000
        )
        return last

    def document(self, name: str) -> Any:
        """`describe.json` or `truth.json`."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def captures() -> Captures:
    return Captures(Path(os.environ.get("REBAL_CAPTURES") or DATA))
