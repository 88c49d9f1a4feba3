"""One line of the broker's request log, parsed: `Completed request:{…}` in any layout."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from rebal.groups.model import Record
from rebal.inspectors.log_lines import time_of, unwrap

MARK: Final = b"Completed request:"
OTHER: Final = "other"
BROKEN: Final = "broken"
NOT_JSON: Final = "not json"

# Found anywhere in a line; the decoded header decides. Everything else is not parsed at all.
_WANTED: Final = re.compile(
    rb"(?:\b(?:JOIN|SYNC|LEAVE)_GROUP\b|\bCONSUMER_GROUP_HEARTBEAT\b)|apiKey=(?:JOIN|SYNC|LEAVE)_GROUP"
)
_CONNECTION: Final = re.compile(r".*:\d+-(.+):\d+-\d+(?:-\d+)?")
_APIS: Final = ("JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT")
_HEARTBEAT: Final = "HEARTBEAT"


class Request(Record, frozen=True, kw_only=True):
    """One completed group request: its header's facts, and the request and response as objects.

    `at` is when it was completed, `total_ms` after it came in; `where` is the source and line;
    `host` has no port.
    """

    api: str
    version: int
    client_id: str
    group_id: str
    error: int
    at: datetime | None
    total_ms: float | None
    where: str
    host: str
    software_name: str | None
    software_version: str | None
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def is_probe(self) -> bool:
        """A join whose every protocol has empty metadata: no consumer sends one, rebal does."""
        if self.api != "JOIN_GROUP":
            return False
        protocols = objects(self.request.get("protocols"))
        return all(not p.get("metadata") for p in protocols)


class _Header(msgspec.Struct):
    requestApiKeyName: str  # noqa: N815 (Kafka's own field names, here and below)
    requestApiVersion: int = 0  # noqa: N815
    clientId: str | None = None  # noqa: N815


class _Software(msgspec.Struct):
    softwareName: str | None = None  # noqa: N815
    softwareVersion: str | None = None  # noqa: N815


class _Line(msgspec.Struct):
    requestHeader: _Header  # noqa: N815
    request: dict[str, Any]
    response: dict[str, Any] | None = None
    connection: str = ""
    totalTimeMs: float | None = None  # noqa: N815
    clientInformation: _Software | None = None  # noqa: N815


_DECODER: Final = msgspec.json.Decoder(_Line)


def parse(
    raw: bytes, where: str, tz_offset: timedelta, heartbeats: bool = False
) -> Request | Literal["other", "broken", "not json"]:
    """The group request in a line that holds `MARK`, or why there is none.

    A classic member's heartbeat says something only where it is answered with an error: it is a
    request of its own only with `heartbeats`.
    """
    if not _WANTED.search(raw) and not (heartbeats and b"HEARTBEAT" in raw):
        return OTHER
    text = raw.decode("utf-8", "replace")
    prefix, _, rest = text.partition("Completed request:")
    at = None
    if rest.startswith('{\\"') or '"' in prefix:
        inner = unwrap(text)
        at = inner.wrapper_time
        prefix, _, rest = inner.text.partition("Completed request:")
    if rest.startswith("RequestHeader("):
        return NOT_JSON
    line = _decode(rest)
    if line is None or line.response is None:
        return BROKEN
    api = line.requestHeader.requestApiKeyName
    if api not in _APIS and not (heartbeats and api == _HEARTBEAT):
        return OTHER
    software = line.clientInformation or _Software()
    error = line.response.get("errorCode", 0)
    group_id = line.request.get("groupId")
    if not isinstance(group_id, str) or not isinstance(error, int):
        return BROKEN
    host = _CONNECTION.fullmatch(line.connection)
    return Request(
        api=api,
        version=line.requestHeader.requestApiVersion,
        client_id=line.requestHeader.clientId or "",
        group_id=group_id,
        error=error,
        at=time_of(prefix, tz_offset) or at,
        total_ms=line.totalTimeMs,
        where=where,
        host=host[1] if host else "",
        software_name=_known(software.softwareName),
        software_version=_known(software.softwareVersion),
        request=line.request,
        response=line.response,
    )


def objects(value: object) -> list[dict[str, Any]]:
    """The JSON objects in a JSON array; nothing when it is not one."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def text_in(body: dict[str, Any], key: str) -> str:
    """A JSON string, empty when it is missing, null or something else."""
    value = body.get(key)
    return value if isinstance(value, str) else ""


def _decode(rest: str) -> _Line | None:
    end = rest.rfind("}")
    while end > 0:
        try:
            return _DECODER.decode(rest[: end + 1].encode())
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError as error:
            # A layout may put braces after the JSON; one that ends inside the JSON is cut off.
            if "trailing characters" not in str(error):
                return None
        except (RecursionError, UnicodeEncodeError):
            return None
        end = rest.rfind("}", 0, end)
    return None


def _known(name: str | None) -> str | None:
    """KIP-511: a client that does not say is logged as `unknown`."""
    return None if name in (None, "", "unknown") else name
