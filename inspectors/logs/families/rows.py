"""The lines that clients other than Java print of their group, as a table: `LINES`.

Written from the output of librdkafka 2.16.0, franz-go 1.22.2, sarama 1.61.1, kafkajs 2.2.4,
kafka-python 3.0.12 and 2, aiokafka 0.14.0; ruby-kafka's from its source (consumer_group.rb).

Only librdkafka, kafka-python and aiokafka can print an assignor list (`ASKED_FOR`). Of the other
lines, those with a member id prove which client that member is. A Java client prints its list in a
line of this kind too, at DEBUG (kafka-clients 2.3.1, 2.8.2, 4.1.1).
"""

import re
from typing import Final

from rebal.inspectors.logs.forms import Kind, forms

# How a client is made to print its list; the others print it at no level.
ASKED_FOR: Final = {
    "librdkafka": "debug=conf,cgrp, where each line names its consumer (rdkafka#consumer-1),",
    "kafka-python": "the logger kafka.coordinator at DEBUG",
    "aiokafka": "the logger aiokafka.conn at DEBUG",
}
_GROUP: Final = r"(?P<group_id>.{1,250}?)"
_MEMBER: Final = r"(?P<member_id>\S{1,300}?)"
# The end of the line, or of the text in JSON.
_END: Final = r"(?:\"|$)"
# librdkafka's own format, and those in which bindings and applications print a line's fields: the
# consumer's name comes before the message in all of them.
_INSTANCE: Final = (
    r"(?:[|\[](?P<instance>[^|\[\]]+#consumer-\d+)|(?<![^\s\"])(?P<instance_>[^\s\"|\[]+#consumer-\d+))"
    r"\b.{0,60}?\[thrd:[^\]]*\]: *"
)


def _kgo(name: str, field: str, value: str) -> str:
    """Return the pattern of one field of kgo's: in its own logger, slog's text or JSON."""
    return rf'"?{name}(?:": ?|: |=)"?(?P<{field}>{value})"?'


_SENT: Final = (
    r"\b(?:Sending JoinGroup \(|Request to \S+ \d+: )JoinGroupRequest\w*\("
    r"group(?:_id)?='(?P<group_id>[^']*)'.{0,200}?\bmember_id='(?P<member_id>[^']+)', "
    r"(?:group_instance_id=(?:None|'(?P<instance_id>[^']*)'), )?protocol_type='consumer', "
    # A line that was cut off would show a part of the list.
    r"(?:group_)?protocols=\[(?P<assignors>.*)\]"
    r"(?:(?:, reason=.*)?\)\) to coordinator |(?<='\)\])\)\s*" + _END + ")"
)
_ROWS: Final[tuple[tuple[str, Kind, str], ...]] = (
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
    ("librdkafka", "setting", _INSTANCE + r"(?P<key>[a-z][\w.]*) = (?P<value>[^\"]*?)\s*" + _END),
    (
        *("librdkafka", "setting"),
        _INSTANCE + r"(?P<key>Client configuration|Default topic configuration):\s*" + _END,
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
        rf"{_MEMBER}" + _END,
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
)
LINES: Final = forms(_ROWS)
# Found in every line that has one of these forms, and in few others.
MARK: Final = re.compile(
    rb"#consumer-\d+\b.{0,60}?\[thrd:|member_id|ember id|member |group failed|to join group"
    rb"|consumergroup/session/|client/coordinator coordinator|\[Consumer(?:Group)?\] "
    rb"|JoinGroup(?: failed|RequestData\()|group protocol type is|Kafka::Incons"
    rb"|Inconsistent Group Protocol"
)
