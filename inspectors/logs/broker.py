"""The broker's `server.log` as evidence: joins, leaves, generations, loads, conversions.

The group coordinator prints them at INFO, the Scala one (before 4.0) and the Java one alike. It
prints no assignor list of a member that is in the group, and no rejected join.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rebal.groups.evidence.observations import LogRead, Observation
from rebal.inspectors.files import TextInput, TextSource
from rebal.inspectors.logs.lines import (
    Kind,
    LogReading,
    Part,
    Zone,
    forms,
    log_origin,
    numbered,
    observation_of,
    shown_by,
    split,
)

# `[GroupCoordinator 1]: …` (Scala), `[GroupCoordinator id=1 topic=… partition=3] …` (Java). The
# message ends before the logger's name, which layouts put behind it, and where JSON or CSV ends it.
_COORDINATOR: Final = re.compile(
    r"\[GroupCoordinator (?:id=)?(\d+)[^\]]*\]:? (.*?)"
    r"(?: \((?:[\w$]+\.)*Group[A-Z]\w*[:)]|\\?\"|$)"
)
_GROUP: Final = r"(?P<group_id>.{1,250}?)"
# A client id, and so a member id, may hold spaces: `app@host (github.com/segmentio/kafka-go)-…`.
_MEMBER: Final = r"(?P<member_id>.{1,300}?)"
_INSTANCE: Final = r"(?P<instance_id>.{0,250}?)"
_REASON: Final = r"(?:; client reason: (?P<reason>.{0,400}?))?"
_END: Final = r"\.?$"
_ROWS: Final[tuple[tuple[Kind, str], ...]] = (
    (
        "given",
        rf"^(?:\[GroupId {_GROUP}\] )?Dynamic member with unknown member id joins (?:the consumer "
        rf"group|group (?P<group_id_>.+?) in .+?)\. Created a new member id {_MEMBER} and "
        r"request(?:ing)? the member to rejoin",
    ),
    ("joined", rf"^Pending dynamic member with id {_MEMBER} joins group {_GROUP} in \w+ state"),
    (
        "joined",
        rf"^\w+ [Mm]ember with (?:groupInstanceId={_INSTANCE} and )?unknown member id joins group "
        rf"{_GROUP} in (?:\w+ state|state \w+)\. Created a new member id {_MEMBER} (?:for|and add)",
    ),
    (
        "joined",
        rf"^Preparing to rebalance group {_GROUP} in state \w+ with old generation \d+ .{{0,40}}?"
        rf"\(reason: Adding new member {_MEMBER} with group instance ?id "
        rf"(?:None|null|Some\({_INSTANCE}\)|(?P<instance_id_>.{{0,250}}?)){_REASON}\.?\)" + _END,
    ),
    (
        "joined",
        rf"^\[GroupId {_GROUP}\] (?:Static m|M)ember {_MEMBER}(?: with instance id {_INSTANCE})? "
        r"joins the consumer group using the \w+ protocol",
    ),
    (
        "joined",
        rf"^\[GroupId {_GROUP}\] Static member with instance id {_INSTANCE} re-joins the consumer "
        rf"group using the \w+ protocol\. Created a new member {_MEMBER} to replace",
    ),
    (
        "left",
        rf"^\[Group(?:Id)? {_GROUP}\] (?:(?:Dynamic|Static) )?[Mm]ember {_MEMBER}"
        rf"(?: with instance id {_INSTANCE})? (?:has left group through explicit `LeaveGroup` "
        rf"request{_REASON}|(?<!temporarily )left the consumer group)" + _END,
    ),
    (
        "left",
        rf"^Member MemberMetadata\(memberId={_MEMBER}, groupInstanceId=(?:None|Some\({_INSTANCE}"
        rf"\)), .*?\) has left group {_GROUP} through explicit `LeaveGroup`(?: request)?{_REASON}"
        + _END,
    ),
    # Brokers before 2.6, and before 2.4.
    (
        "left",
        rf"^Member(?:\[group\.instance\.id (?:None|Some\({_INSTANCE}\)), member\.id)? {_MEMBER}\]? "
        rf"in group {_GROUP} has left",
    ),
    ("expired", rf"^Member {_MEMBER} in group {_GROUP} has failed, removing it"),
    (
        "expired",
        rf"^\[GroupId {_GROUP}\] Member {_MEMBER} fenced from the group because the member session "
        r"expired",
    ),
    ("rebalanced", rf"^Stabilized group {_GROUP} generation (?P<generation_id>\d{{1,10}})\b"),
    # Open at their end: without its load, a rebalance before it would count as one after it.
    ("loaded", rf"^Loading group metadata for {_GROUP} with generation \d+\b"),
    ("loaded", rf"^Loaded \w+ group {_GROUP} with \d+ members\b"),
    ("member", rf"^Assignment received from leader {_MEMBER} for group {_GROUP} for generation"),
    (
        "converted",
        rf"^\[GroupId {_GROUP}\] (?P<what>Converted the .*? group to a .*? group)" + _END,
    ),
    (
        "converted",
        rf"^(?P<what>Cannot (?:up|down)grade (?:classic|consumer) group {_GROUP} to .*?)" + _END,
    ),
)
_LINES: Final = forms(("", *row) for row in _ROWS)


def read_broker_log(sources: Sequence[TextSource], tz_offset: Zone = None) -> LogReading:
    """Return the observations in the group coordinators' lines of the brokers' `server.log` files.

    A time without a zone has the offset `tz_offset` from UTC. If that is None, the time is stored
    as if it were UTC, and the observation is marked `local`.

    Raises:
        DocumentError: a source cannot be read.
    """
    found: list[Observation] = []
    logs: list[LogRead] = []
    lines = 0
    for source in map(TextInput, sources):
        parts: dict[int, Part] = {}
        last: dict[int, str] = {}
        number, raw = 0, b""
        for number, raw in numbered(source.lines()):
            for line in split(raw, number, tz_offset) if b"[GroupCoordinator " in raw else ():
                if not (match := _COORDINATOR.search(line.text)):
                    continue
                broker_id = int(match[1])
                if broker_id not in parts:
                    parts[broker_id] = Part(
                        source,
                        LogRead(
                            log=source.name,
                            origin=log_origin(source.name, f"broker {broker_id}"),
                            kind="broker",
                            broker_id=broker_id,
                        ),
                    )
                part, shown = parts[broker_id], shown_by(_LINES, match[2])
                part.take(line.stamp)
                last |= {broker_id: match[2]} if match[2].startswith(("Start", "Shut")) else {}
                if shown is None:
                    continue
                if shown.form.kind == "member":
                    part.members.add((shown.get("group_id"), shown.get("member_id")))
                one = observation_of(shown, *part.place(line))
                found += [one] if one is not None else []
        lines += number
        # A broker whose groups are stable still prints other lines: they show how far its log goes.
        for part in parts.values() if len(parts) == 1 else ():
            part.take(next((line.stamp for line in split(raw, number, tz_offset)), None))
        # The group is loaded after a shutdown, and this log does not show it.
        logs += [
            replace(part.read(), broker_id=None if last.get(one, "").startswith("Shut") else one)
            for one, part in parts.items()
        ]
    note = (
        f"--broker-log: none of the {lines:,} lines is the group coordinator's "
        "(`[GroupCoordinator …]`, INFO in server.log); give the log of each broker."
    )
    return LogReading(observations=tuple(found), logs=tuple(logs), notes=() if logs else (note,))
