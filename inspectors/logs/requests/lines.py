"""One line of the broker's request log, parsed: `Completed request:{…}` in any layout."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from rebal.groups.model import Record
from rebal.inspectors.logs.lines import Stamp, Zone, better, stamp_of, unwrap

MARK: Final = b"Completed request:"
OTHER: Final = "other"
BROKEN: Final = "broken"
NOT_JSON: Final = "not json"

_NAME: Final = b"requestApiKeyName"
_LONGEST_NAME: Final = 100
_QUOTES: Final = 3
# Where quotes are not escaped, no text within the JSON can look like this.
_PLAIN_NAME: Final = b'"requestApiKeyName":"'
# Found anywhere in a line of another layout; the decoded header decides.
_WANTED: Final = re.compile(
    rb"(?:\b(?:JOIN|SYNC|LEAVE)_GROUP\b|\bCONSUMER_GROUP_HEARTBEAT\b)|apiKey=(?:JOIN|SYNC|LEAVE)_GROUP"
)
_NO_ERROR: Final = re.compile(rb'"errorCode\\*":\s*0\b')
_LOG4J: Final = re.compile(
    rb"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)[.,](\d{3})\]? (?:TRACE|DEBUG|INFO) *"
)
_CONNECTION: Final = re.compile(r"(.*:\d+)-(.+):\d+-\d+(?:-\d+)?")
# A member's heartbeat in the usual layout; the connection stands behind it.
_PRESENT: Final = re.compile(
    rb'"requestApiKeyName":"HEARTBEAT".*?"groupId":"([^"\\]+)","generationId":\d+,'
    rb'"memberId":"([^"\\]+)".*?"errorCode":0\b.*?"connection":"([^"\\]*)"'
)
_APIS: Final = ("JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT")
_PLAIN_APIS: Final = frozenset(api.encode() for api in _APIS)
_HEARTBEAT: Final = "HEARTBEAT"


class Request(Record, frozen=True, kw_only=True):
    """One completed group request: its header's facts, and the request and response as objects.

    `at` is when it was completed (with `local` by the log's own clock, as if that were UTC),
    `total_ms` after it came in; `where` is the source and line; `host` has no port; `broker` is the
    address and port that the client was connected to.
    """

    api: str
    version: int
    client_id: str
    group_id: str
    error: int
    at: datetime | None
    local: bool
    total_ms: float | None
    where: str
    log: str
    line: int
    host: str
    broker: str
    connection: str
    software_name: str | None
    software_version: str | None
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def origin(self) -> str:
        """One broker's logs in one folder: the parts of a log that is rotated have one clock."""
        return origin(self.log, self.broker)

    @property
    def is_probe(self) -> bool:
        """A join whose every protocol has empty metadata: no consumer sends one, rebal does."""
        if self.api != "JOIN_GROUP":
            return False
        protocols = objects(self.request.get("protocols"))
        return all(not p.get("metadata") for p in protocols)


def origin(log: str, broker: str) -> str:
    """The name of what one broker wrote into the logs of one folder."""
    folder, separator, _ = log.rpartition("/")
    return f"{folder if separator else log} {broker}"


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


def is_cut_off(raw: bytes) -> bool:
    """Whether a line that holds `MARK` ends before it says what request it is of."""
    at = raw.find(_NAME)
    if at >= 0:
        return raw.count(b'"', at, at + _LONGEST_NAME) < _QUOTES
    return b"RequestHeader(" not in raw


def may_concern_group(raw: bytes, heartbeats: bool = False) -> bool:
    """Whether the bytes of a line that holds `MARK` may be a request that `parse` tells of.

    Cheap: it is asked of each line, and most are of other requests.
    """
    at = raw.find(_PLAIN_NAME)
    if at >= 0:
        at += len(_PLAIN_NAME)
        api = raw[at : raw.find(b'"', at)]
        if api in _PLAIN_APIS:
            return True
        return heartbeats and api == b"HEARTBEAT" and not _NO_ERROR.search(raw, at)
    if b"_GROUP" in raw and _WANTED.search(raw):
        return True
    return heartbeats and b"HEARTBEAT" in raw and not _NO_ERROR.search(raw)


def parse(
    raw: bytes, where: str, tz_offset: Zone, heartbeats: bool = False
) -> Request | Literal["other", "broken", "not json"]:
    """The group request in a line that holds `MARK`, or why there is none.

    A classic member's heartbeat says something only where it is answered with an error: such a one
    is a request of its own with `heartbeats`.
    """
    if not may_concern_group(raw, heartbeats):
        return OTHER
    prefix, _, rest = raw.partition(MARK)
    at: Stamp | None = None
    if rest.startswith(b'{\\"') or b'"' in prefix:
        inner = unwrap(raw.decode("utf-8", "replace"), tz_offset)
        at = inner.wrapper_time
        prefix, _, rest = inner.text.encode("utf-8", "replace").partition(MARK)
    if rest.startswith(b"RequestHeader("):
        return NOT_JSON
    line = _decode(rest)
    if line is None or line.response is None:
        return BROKEN
    api = line.requestHeader.requestApiKeyName
    if api not in _APIS and not (heartbeats and api == _HEARTBEAT):
        return OTHER
    stamp = better(_time(prefix, tz_offset), at)
    software = line.clientInformation or _Software()
    error = line.response.get("errorCode", 0)
    group_id = line.request.get("groupId")
    if not isinstance(group_id, str) or not isinstance(error, int):
        return BROKEN
    return Request(
        api=api,
        version=line.requestHeader.requestApiVersion,
        client_id=line.requestHeader.clientId or "",
        group_id=group_id,
        error=error,
        at=stamp and stamp.at,
        local=stamp is not None and stamp.local,
        total_ms=line.totalTimeMs,
        where=where,
        log=where.rpartition(":")[0] or where,
        line=int(number) if (number := where.rpartition(":")[2]).isdecimal() else 0,
        host=_ends(line.connection)[1],
        broker=_ends(line.connection)[0],
        connection=line.connection,
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


def _decode(rest: bytes) -> _Line | None:
    end = rest.rfind(b"}")
    while end > 0:
        try:
            return _DECODER.decode(rest[: end + 1])
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError as error:
            # A layout may put braces after the JSON; one that ends inside the JSON is cut off.
            if "trailing characters" not in str(error):
                return None
        except UnicodeDecodeError:
            return _decode(rest.decode("utf-8", "replace").encode())
        except RecursionError:
            return None
        end = rest.rfind(b"}", 0, end)
    return None


def _time(prefix: bytes, tz_offset: Zone) -> Stamp | None:
    usual = _LOG4J.fullmatch(prefix)
    if usual is None:
        return stamp_of(prefix.decode("utf-8", "replace"), tz_offset)
    second = _second(usual[1], tz_offset)
    return second and second._replace(at=second.at + timedelta(milliseconds=int(usual[2])))


@lru_cache(maxsize=1024)
def _second(text: bytes, tz_offset: Zone) -> Stamp | None:
    return stamp_of(text.decode(), tz_offset)


@lru_cache(maxsize=1024)
def _ends(connection: str) -> tuple[str, str]:
    """The broker's address and port, and the client's address."""
    found = _CONNECTION.fullmatch(connection)
    return (found[1], found[2]) if found else ("", "")


def present(raw: bytes) -> tuple[str, str, str] | None:
    """The group, the member id and the broker of a heartbeat that was answered without error."""
    found = _PRESENT.search(raw) if b'"requestApiKeyName":"HEARTBEAT"' in raw else None
    if found is None:
        return None
    group_id, member_id, connection = (part.decode("utf-8", "replace") for part in found.groups())
    return group_id, member_id, _ends(connection)[0]


def _known(name: str | None) -> str | None:
    """KIP-511: a client that does not say is logged as `unknown`."""
    return None if name in (None, "", "unknown") else name
