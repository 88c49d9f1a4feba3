"""Logs of other clients than Java's: `OtherClients` reads the lines that the Java reader reads too.

A line with a member id is evidence by itself: it shows the client of that member id, and in some
clients its assignor list. Only librdkafka prints its list before it has a member id. It prints the
name of the consumer object in each line, and that name is the same in every pod: `NAME#consumer-1`.
A list is bound to a member id only if all lines under that name can be of one process: the stream
has the first object's start, each object closes before the next one starts, and each line about a
new member id names the last printed one as the id before it.

Written from the output of librdkafka 2.16.0, franz-go 1.22.2, sarama 1.61.1, kafkajs 2.2.4,
kafka-python 3.0.12 and 2, aiokafka 0.14.0; ruby-kafka's from its source (consumer_group.rb).

Only librdkafka, kafka-python and aiokafka can print an assignor list (`ASKED_FOR`). Other lines
with a member id prove which client that member is. A Java client can print its list in the
JoinGroup request line read here, at DEBUG (kafka-clients 2.3.1, 2.8.2, 4.1.1).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import default_list, families
from rebal.groups.evidence.observations import (
    Introduced,
    Joined,
    LogRead,
    Observation,
    Refused,
    Where,
)
from rebal.groups.model import Evidence, Software
from rebal.inspectors.errors import JOIN_REJECTIONS
from rebal.inspectors.files import TextInput
from rebal.inspectors.logs.lines import Part, Shown, Zone, forms, observation_of, shown_by, split

_NOT_SET: Final = "(not-set)"
_BEGIN, _END = "Client configuration", "Default topic configuration"
_NAMES: Final = ("client.software.name", "client.software.version")
# Other settings are dropped: they may contain secrets.
_KEPT: Final = (
    *(*_NAMES, _BEGIN, _END, "client.id", "group.instance.id"),
    *("partition.assignment.strategy", "group.protocol"),
)


# How a client is made to print its list; the others print it at no level.
ASKED_FOR: Final = {
    "librdkafka": "debug=conf,cgrp, where each line names its consumer (rdkafka#consumer-1),",
    "kafka-python": "the logger kafka.coordinator at DEBUG",
    "aiokafka": "the logger aiokafka.conn at DEBUG",
}
_GROUP: Final = r"(?P<group_id>.{1,250}?)"
_MEMBER: Final = r"(?P<member_id>\S{1,300}?)"
# The end of the line, or of the text in JSON.
_STOP: Final = r"(?:\"|$)"
# librdkafka's own format, and those in which bindings and applications print a line's fields: the
# consumer's name comes before the message in all of them.
_INSTANCE: Final = (
    r"(?:[|\[](?P<instance>[^|\[\]]+#consumer-\d+)|(?<![^\s\"])(?P<instance_>[^\s\"|\[]+#consumer-\d+))"
    r"\b.{0,60}?\[thrd:[^\]]*\]: *"
)


def _kgo(name: str, field: str, value: str) -> str:
    """Return the pattern of the key `name` with a value that `value` matches, in a franz-go line.

    The pattern's group `field` is the value.

    It matches the layouts of franz-go's own logger and of slog (text and JSON).
    """
    return rf'"?{name}(?:": ?|: |=)"?(?P<{field}>{value})"?'


_SENT: Final = (
    r"\b(?:Sending JoinGroup \(|Request to \S+ \d+: )JoinGroupRequest\w*\("
    r"group(?:_id)?='(?P<group_id>[^']*)'.{0,200}?\bmember_id='(?P<member_id>[^']+)', "
    r"(?:group_instance_id=(?:None|'(?P<instance_id>[^']*)'), )?protocol_type='consumer', "
    # A line that was cut off would show a part of the list.
    r"(?:group_)?protocols=\[(?P<assignors>.*)\]"
    r"(?:(?:, reason=.*)?\)\) to coordinator |(?<='\)\])\)\s*" + _STOP + ")"
)
LINES: Final = forms((
    (
        *("java", "sent"),
        r"\bSending JoinGroup \(JoinGroupRequestData\(groupId='(?P<group_id>[^']*)', .{0,99}?"
        r"\bmemberId='(?P<member_id>[^']+)', groupInstanceId=(?:null|'(?P<instance_id>[^']*)'), "
        r"protocolType='consumer', protocols=\[(?P<assignors>.*)\](?:, reason=.*)?\)\) to "
        r"coordinator ",
    ),
    (
        *("librdkafka", "identity"),
        _INSTANCE + rf'Group "{_GROUP}": updating member id "(?P<before>.{{0,300}}?)" -> '
        r'"(?P<member_id>.{0,300}?)"',
    ),
    (
        "librdkafka",
        "setting",
        _INSTANCE + r"(?P<key>[a-z][\w.]*) = (?P<value>[^\"]*?)\s*" + _STOP,
    ),
    (
        *("librdkafka", "setting"),
        _INSTANCE + r"(?P<key>Client configuration|Default topic configuration):\s*" + _STOP,
    ),
    (
        *("librdkafka", "sent"),
        _INSTANCE + rf'\S+: Joining group "{_GROUP}" with .*? and member id "(?P<member_id>.*?)"',
    ),
    (
        *("librdkafka", "joined"),
        _INSTANCE + r"JoinGroup response: GenerationId (?P<generation_id>\d{1,10}), Protocol .*?, "
        rf"LeaderId .*?, my MemberId {_MEMBER}, member metadata count \d+: \(no error\)",
    ),
    (
        *("librdkafka", "rejected"),
        _INSTANCE + r"JoinGroup response: .*(?P<INCONSISTENT_GROUP_PROTOCOL>Inconsistent group "
        r"protocol)",
    ),
    (
        *("librdkafka", "rejected"),
        _INSTANCE + r"Fatal error: .*?(?P<FENCED_INSTANCE_ID>Static consumer fenced)",
    ),
    # What an application prints of a consumer's error, and librdkafka's own log with debug alone.
    (
        *("librdkafka", "rejected"),
        r"\bJoinGroup (?:failed|response): .*?(?P<INCONSISTENT_GROUP_PROTOCOL>Inconsistent group "
        r"protocol)",
    ),
    (
        *("librdkafka", "misused"),
        _INSTANCE + rf'Group "{_GROUP}": application \*?assign\(\) call failed: .*COOPERATIVE',
    ),
    (
        *("franz-go", "joined"),
        r"\bjoined(?:, balancing group)?\b.{0,99}?\b"
        + r"[, ]+".join(
            (
                _kgo("group", "group_id", r"[^,\"]{1,250}?"),
                _kgo("member_id", "member_id", r"[^,\"\s]{1,300}"),
                _kgo("instance_id", "instance_id", r"[^,\"]{0,250}?"),
                _kgo("generation", "generation_id", r"\d{1,10}"),
            )
        ),
    ),
    (
        *("franz-go", "left"),
        r"\bleaving group\b.{0,99}?\b"
        + _kgo("group", "group_id", r"[^,\"]{1,250}?")
        + r"[, ]+"
        + _kgo("member_id", "member_id", r"[^,\"\s]{1,300}"),
    ),
    (
        *("franz-go", "rejected"),
        r"\bjoin group failed\b.{0,99}?\b"
        + _kgo("group", "group_id", r"[^,\"]{1,250}?")
        + r"[, ]+\"?err\b.{0,99}?(?P<INCONSISTENT_GROUP_PROTOCOL>INCONSISTENT_GROUP_PROTOCOL)",
    ),
    ("sarama", "member", rf"\bclient/coordinator coordinator for {_GROUP} is #\d"),
    (
        *("sarama", "rejected"),
        r"\b(?P<INCONSISTENT_GROUP_PROTOCOL>The provider group protocol type is incompatible)",
    ),
    # Printed when the session ends, so the time is not that of the join.
    ("sarama", "named", rf"\bconsumergroup/session/{_MEMBER}/\d+ (?:heartbeat|released)"),
    (
        *("kafkajs", "joined"),
        r"\[ConsumerGroup\] Consumer has joined the group\b.{0,99}?"
        r'"groupId":"(?P<group_id>[^"\\]+)","memberId":"(?P<member_id>[^"\\]+)"',
    ),
    (
        *("kafkajs", "rejected"),
        r"\[Consumer\] Crash: KafkaJSProtocolError: (?P<INCONSISTENT_GROUP_PROTOCOL>The group "
        r"member's supported protocols are incompatible).*?\"groupId\":\"(?P<group_id>[^\"\\]+)\"",
    ),
    ("aiokafka", "sent", r"\baiokafka\..*" + _SENT),
    ("kafka-python", "sent", _SENT),
    (
        *("kafka-python", "joined"),
        rf"Successfully joined group {_GROUP} <Generation (?P<generation_id>\d{{1,10}}) "
        rf"\(member_id: {_MEMBER}, protocol: [^)]*\)>",
    ),
    ("kafka-python", "left", rf"Leaving consumer group {_GROUP} \(member {_MEMBER}\)"),
    (
        *("aiokafka", "rejected"),
        r"Attempt to join group failed due to fatal error: .*"
        r"(?P<INCONSISTENT_GROUP_PROTOCOL>InconsistentGroupProtocolError)",
    ),
    (
        *("kafka-python", "rejected"),
        rf"(?:Attempt|Failed) to join group {_GROUP}(?: failed due to fatal error)?: "
        r".*(?P<INCONSISTENT_GROUP_PROTOCOL>InconsistentGroupProtocolError)",
    ),
    (
        *("aiokafka", "joined"),
        rf"Joined group '{_GROUP}' \(generation (?P<generation_id>\d{{1,10}})\) with member_id "
        rf"{_MEMBER}" + _STOP,
    ),
    (
        "ruby-kafka",
        "rejected",
        r"\bKafka::(?P<INCONSISTENT_GROUP_PROTOCOL>InconsistentGroupProtocol)\b",
    ),
    (
        "segmentio",
        "rejected",
        r"\[23\] (?P<INCONSISTENT_GROUP_PROTOCOL>Inconsistent Group Protocol)",
    ),
    ("ruby-kafka", "joined", rf"Joined group `{_GROUP}` with member id `{_MEMBER}`"),
))  # fmt: skip
# Found in every line that has one of these forms, and in few others.
MARK: Final = re.compile(
    rb"#consumer-\d+\b.{0,60}?\[thrd:|member_id|ember id|member |group failed|to join group"
    rb"|consumergroup/session/|client/coordinator coordinator|\[Consumer(?:Group)?\] "
    rb"|JoinGroup(?: failed|RequestData\()|group protocol type is|Kafka::Incons"
    rb"|Inconsistent Group Protocol"
)


class _LibrdkafkaConsumer:
    """The output of the librdkafka consumers with one name (`NAME#consumer-1`) in one log stream.

    `unclear` is True if more than one process may have printed under the name. `settings` and the
    member id `current` are those of the newest consumer with the name.
    """

    def __init__(self) -> None:
        self.unclear = False
        self.group_id = ""
        self.current: str | None = None
        self.settings: dict[str, str] = {}

    def take(self, shown: Shown) -> None:
        """Record what one line shows: a new member id, a join that is sent, or a setting."""
        member_id = shown.get("member_id")
        match shown.form.kind:
            case "identity":
                before = shown.get("before")
                new = before == _NOT_SET
                known = (None, _NOT_SET) if new else (before,)
                self.unclear = self.unclear or self.current not in known
                self.settings = {} if new else self.settings
                self.current = member_id
                self.group_id = shown.get("group_id")
            case "sent":
                self.unclear = self.unclear or self.current != member_id
            case "setting":
                key = shown.fields["key"]
                self.unclear = self.unclear or (key == _BEGIN and bool(self.settings))
                # What follows is the topics' configuration.
                if key in _KEPT and _END not in self.settings:
                    self.settings[key] = shown.get("value")


class OtherClients:
    """Reader of one source's lines by clients other than Java's.

    Its observations are complete after `lines` has ended.
    """

    def __init__(self, source: TextInput, zone: Zone) -> None:
        self._source = source
        self._zone = zone
        self._parts: dict[str, Part] = {}
        self._consumers: dict[tuple[str, str], _LibrdkafkaConsumer] = {}
        self._groups: dict[tuple[str, str], set[str]] = {}
        # Functions make the observations that need the whole stream.
        self._found: list[Observation | Callable[[], Observation]] = []
        # (program, family, group)
        self._rejected: dict[tuple[str, str, str], Refused] = {}
        # with the member id
        self._joined: set[tuple[str, str, str, str]] = set()
        # (family, group) -> whether a list was printed
        self._listed: dict[tuple[str, str], bool] = {}
        self._notes: dict[str, None] = {}

    def lines(self) -> Iterator[bytes]:
        """Yield the source's lines unchanged, and record the observations that each line shows."""
        for number, raw in enumerate(self._source.lines(), 1):
            texts = [*split(raw, number, self._zone)] if MARK.search(raw) else []
            for line in texts:
                # kafkajs and Go's JSON loggers print the ids beside the message.
                whole = raw.decode("utf-8", "replace") if len(texts) == 1 and b"{" in raw else ""
                shown = shown_by(LINES, line.text) or shown_by(LINES, whole)
                if shown is None and "[thrd:" not in line.text:
                    continue
                if line.program not in self._parts:
                    origin = f"{self._source.name} {line.program}".strip()
                    self._parts[line.program] = Part(
                        self._source, LogRead(log=origin, origin=origin, kind="client")
                    )
                part = self._parts[line.program]
                part.take(line.stamp)
                if shown is None:
                    self._list("librdkafka", "")
                else:
                    self._take(shown, line.program, *part.place(line))
            yield raw

    def _take(self, shown: Shown, program: str, evidence: Evidence, where: Where) -> None:
        kind, family, fields = shown.form.kind, shown.form.family, shown.fields
        known = family in families()
        software = Software(
            family=family if known else None,
            name=None if known else family,
            evidence=(evidence,),
        )
        one: _LibrdkafkaConsumer | None = None
        if "instance" in fields:
            one = self._consumers.setdefault((program, fields["instance"]), _LibrdkafkaConsumer())
            one.take(shown)
            fields.setdefault("group_id", one.group_id)
        elif "group_id" not in fields and len(self._groups.get((program, family), ())) == 1:
            (fields["group_id"],) = self._groups[program, family]
        group_id = shown.get("group_id")
        if kind in ("rejected", "misused"):
            self._list(family, group_id)
        seen = observation_of(shown, evidence, where, software)
        match kind:
            case "rejected":
                self._reject(shown, program, evidence, where, software)
            case "misused":
                self._notes.setdefault(
                    f"{evidence.detail}: the application calls assign() while group {group_id!r} "
                    "runs COOPERATIVE, and librdkafka rejects that: its rebalance callback must "
                    "call incremental_assign() and incremental_unassign() then."
                )
            case "member":
                self._groups.setdefault((program, family), set()).add(group_id)
            case "sent" | "identity" if one is not None:
                if kind == "identity" and isinstance(seen, Joined) and seen.member_id != _NOT_SET:
                    self._found.append(partial(self._bound, seen, one, one.settings))
            case _ if seen is not None and group_id:
                self._found.append(seen)
                if isinstance(seen, Joined | Introduced):
                    self._list(family, group_id, bool(isinstance(seen, Joined) and seen.list))
                if isinstance(seen, Joined) and seen.accepted:
                    key = (program, family, group_id)
                    # The client went on by itself; another one that is there rejoins.
                    if (*key, seen.member_id) not in self._joined:
                        self._rejected.pop(key, None)
                    self._joined.add((*key, seen.member_id))

    def _list(self, family: str, group_id: str, listed: bool = False) -> None:
        """Record that the log shows a member of this family in the group.

        `listed` is True if the log also shows the member's assignor list.
        """
        self._listed[family, group_id] = listed or self._listed.get((family, group_id), False)

    def _reject(
        self, shown: Shown, program: str, evidence: Evidence, where: Where, software: Software
    ) -> None:
        family, group_id = shown.form.family, shown.get("group_id")
        error = next(name for name in shown.fields if name in JOIN_REJECTIONS)
        if not group_id:
            self._notes.setdefault(
                f"{self._source.name}: a member was rejected ({error}); its group is not shown."
            )
            return
        key = (program, family, group_id)
        before = self._rejected.get(key)
        self._rejected[key] = Refused(
            **where,
            group_id=group_id,
            at=evidence.at,
            times=1 + (before.times if before is not None else 0),
            error=error,
            client_id=shown.get("instance").partition("#consumer-")[0],
            software=software,
            evidence=evidence,
        )

    def read(self) -> tuple[list[Observation], list[LogRead], list[str]]:
        """Return the observations, a record of each program's log, and notes for the operator.

        Call it after `lines` has ended.
        """
        found = [one() if callable(one) else one for one in self._found]
        groups = Counter(family for family, _ in self._listed)
        for (family, group_id), listed in self._listed.items():
            if not listed and (group_id or groups[family] == 1):
                how = ASKED_FOR.get(family)
                of = f" of group {group_id!r}" if group_id else ""
                self._notes.setdefault(
                    f"{self._source.name}: {family} printed no assignor list{of}; "
                    + (
                        f"{how} makes it print one."
                        if how
                        else "it does so at no level: --request-log shows the list."
                    )
                )
        found += self._rejected.values()
        return found, [part.read() for part in self._parts.values()], list(self._notes)

    def _bound(
        self, seen: Joined, of: _LibrdkafkaConsumer, settings: dict[str, str]
    ) -> Observation:
        """Return the join `seen` of a librdkafka consumer, with its assignor list if it is certain.

        `of` and `settings` are the consumer's output and printed configuration. A member of the
        consumer protocol (KIP-848) has no list: for it the result is not a join, but an
        `Introduced` with its client software.
        """
        names: tuple[str, ...] = ()
        if of.unclear:
            self._notes.setdefault(
                f"{seen.evidence.detail}: the start of this consumer is missing, or several "
                "processes print under its name; give one log per process from its start (or "
                "`kubectl logs` with --prefix)."
            )
            settings = {}
        if {_BEGIN, _END} <= settings.keys():
            set_list = settings.get("partition.assignment.strategy")
            # librdkafka skips spaces and empty names.
            names = (
                tuple(filter(None, map(str.strip, set_list.split(","))))
                if set_list
                else default_list("librdkafka") or ()
            )
        name, version = map(settings.get, _NAMES)
        software = Software(
            family="librdkafka", name=name, version=version, evidence=(seen.evidence,)
        )
        where = Where(log=seen.log, line=seen.line, origin=seen.origin, local=seen.local)
        # A member of the consumer protocol has no list to print.
        newer = settings.get("group.protocol") == "consumer"
        self._list("librdkafka", seen.group_id, newer or bool(names))
        if newer:
            return Introduced(
                **where,
                group_id=seen.group_id,
                member_id=seen.member_id,
                software=software,
                evidence=seen.evidence,
            )
        return replace(
            seen,
            list=names,
            software=software,
            client_id=settings.get("client.id", seen.client_id),
            instance_id=settings.get("group.instance.id"),
        )
