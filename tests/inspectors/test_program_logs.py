"""What logs show of Streams programs and Connect workers; the lines are real programs' own."""

from __future__ import annotations

import base64
from string import Template

import pytest
from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.compact import Partitions
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined, Ran
from rebal.groups.model import Evidence, RebalanceProtocol, Source, Subscription
from rebal.groups.protocol import group_protocol
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from tests.encoders import encode_assignment, encode_subscription
from tests.groups.observed import COOP, KEPT, group, member
from tests.inspectors.logs import DATA, of_kind, read_clients
from tests.inspectors.test_request_log import body, line, read

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
AT = "[2026-11-21 11:29:33,657] INFO org.apache.kafka."
STREAMS = DATA / "streams_logs"
UUID = "fd8f6556-045d-44e7-88b9-000000000001"


def printed(text: str) -> list[tuple[RebalanceProtocol, str | None]]:
    return [(one.value, one.upgrade_from) for one in of_kind(read_clients(text), Ran)]


def without(text: str, *classes: str) -> str:
    """The log of a program that is told to print nothing of these classes at INFO."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not any(each in line for each in classes))


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("3.9.1-2.3", EAGER, "2.3"),
        ("3.9.1-3.3", COOPERATIVE, "3.3"),
        ("3.9.1-unset", COOPERATIVE, ""),
        ("4.1.1-unset", COOPERATIVE, ""),
    ],
)
def test_a_real_streams_log_tells_upgrade_from_and_what_it_does(
    name: str, value: RebalanceProtocol, setting: str
) -> None:
    text = (STREAMS / f"streams-{name}.log").read_text()
    older = text.replace("rebalancing protocol is enabled now", "rebalancing enabled now")
    # The configuration alone tells as much as the assignor's own line, once the version is known.
    configured = without(text, "AssignorConfiguration")
    assert printed(text) == printed(older) == printed(configured) == [(value, setting)]
    assert printed(without(configured, "AppInfoParser")) == []
    # Without the block there is what the assignor says of itself, which 4.0 and later do not.
    bare = text[text.index("AdminClientConfig values") :]
    known = [(value, setting if value is EAGER else None)]
    assert printed(bare) == ([] if name.startswith("4") else known)


def test_upgrade_from_is_of_the_program_that_the_member_is_of() -> None:
    eager, cooperative = (
        (STREAMS / f"streams-3.9.1-{name}.log").read_text() for name in ("2.3", "unset")
    )
    # Two that were built before either joined cannot be told apart.
    built = next(line for line in cooperative.splitlines() if "rebalancing protocol is" in line)
    assert printed(f"{built}\n{eager}") == []
    # Another application of the same client id, which joins later: its block is not this one's.
    other = cooperative.index("ConsumerConfig values")
    mixed = cooperative[:other] + eager + cooperative[other:]
    assert printed(mixed) == [(EAGER, "2.3"), (COOPERATIVE, "")]
    # Killed and started again with another setting, into the same log: each member was given its
    # id before the next program printed its block.
    again = eager + cooperative.replace("g-3.9.1-unset", "g-3.9.1-2.3")
    again = without(again, "unregistered")
    bare = without(again, "AssignorConfiguration")
    assert printed(again) == printed(bare) == [(EAGER, "2.3"), (COOPERATIVE, "")]
    # Clients before 3.0 do not print that, and another member's line leaves the second one open.
    older = without(again.replace("3.9.1\n", "2.8.2\n"), "given member-id")
    assert printed(older)[:1] == [(EAGER, "2.3")]


def test_a_program_without_a_client_id_is_known_by_its_application() -> None:
    text = (STREAMS / "streams-3.9.1-2.3.log").read_text()
    named = text.replace("\tclient.id = a\n", "\tclient.id = \n", 1)
    generated = f"g-3.9.1-2.3-{UUID}-StreamThread-1"
    unnamed = without(named, "AssignorConfiguration").replace("a-StreamThread-1", generated)
    assert printed(unnamed) == [(EAGER, "2.3")]
    foreign = unnamed.replace(generated, f"other-{UUID}-StreamThread-1")
    assert printed(foreign) == []


@pytest.mark.parametrize(
    ("client", "protocol"),
    [("w1", "eager"), ("connect-1", "compatible"), ("connect-127.0.0.1:8083", "sessioned")],
)
def test_a_worker_says_its_protocol(client: str, protocol: str) -> None:
    set_to = client if client == "w1" else ""
    # The consumer of a worker's own topics has the worker's group id, and may have no name.
    log = Template((DATA / "connect/worker.log").read_text())
    text = log.substitute(client=client, set_to=set_to, protocol=protocol)
    (join,) = read_clients(text).observations
    assert isinstance(join, Joined)
    assert join.list == worker_list(protocol)
    assert (join.member_id, join.protocol_type) == (f"{client}-{UUID}", "connect")
    assert join.software.version == "4.1.1"
    timeouts = (join.session_timeout_ms, join.rebalance_timeout_ms, join.held_back_ms)
    assert timeouts == (10_000, 60_000, 300_000)


OWNED = {"t": Partitions([0])}


def request(api: str, asked: dict, answer: dict, software: str = "unknown") -> str:
    about = {"softwareName": software, "softwareVersion": "1"}
    asked = {"memberId": "a-1", **asked}
    return line(body(api, 5, asked, answer, client_id="a", clientInformation=about))


def joining(
    owned: dict[str, Partitions], generation: int, name: str = "stream", software: str = "unknown"
) -> str:
    sent = encode_subscription(
        Subscription(version=3, topics=("t",), owned_partitions=owned, generation_id=generation)
    )
    protocols = [{"name": name, "metadata": base64.b64encode(sent).decode()}]
    asked = {"protocolType": "consumer", "protocols": protocols}
    answer = {"memberId": "a-1", "generationId": generation + 1}
    return request("JOIN_GROUP", asked, answer, software)


def given(partitions: list[int], generation: int, topic: str = "t") -> str:
    made = encode_assignment(
        ConsumerAssignment(version=3, partitions={topic: Partitions(partitions)})
    )
    answer = {"assignment": base64.b64encode(made).decode()}
    return request("SYNC_GROUP", {"generationId": generation}, answer)


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ([joining({}, -1), given([0, 1], 1), joining({}, 1)], [EAGER]),
        ([joining(OWNED, 1)], [COOPERATIVE]),
        # Nothing was there to keep, or the generation before is not the one that gave it.
        ([given([], 1), joining({}, 1)], []),
        ([given([0], 1), joining({}, 2)], []),
        # An EAGER list tells: nothing is drawn from what such a member owns.
        ([given([0], 1), joining({}, 1, name="range")], []),
        # A class of the application's own may stand behind a name that is not EAGER.
        ([given([0], 1), joining({}, 1, name=COOP)], [EAGER]),
        ([given([0], 1), joining({}, 1, name="acme")], [EAGER]),
        # It does not want that topic any longer, or it never received that assignment.
        ([given([0], 1, topic="u"), joining({}, 1, name=COOP)], []),
        ([given([0], 1), joining(OWNED, 1, COOP), given([0], 2), joining({}, 2, COOP)], []),
        ([given([0], 1), joining({}, 1, COOP), joining(OWNED, 2, COOP)], [EAGER, COOPERATIVE]),
        # franz-go follows the vote: what it does in one generation proves nothing of the next.
        ([given([0], 1), joining({}, 1, name=COOP, software="kgo")], []),
        ([request("SYNC_GROUP", {"generationId": 1}, {"assignment": "?"}), joining({}, 1)], []),
    ],
)
def test_what_a_member_did_with_its_partitions(
    lines: list[str], values: list[RebalanceProtocol]
) -> None:
    assert [one.value for one in of_kind(read(*lines), Ran)] == values


def seen(value: RebalanceProtocol, source: Source = Source.REQUEST_LOG) -> Ran:
    evidence = Evidence(source=source, detail=str(value))
    return Ran(group_id="g", member_id="a-id", value=value, evidence=evidence)


def test_what_was_seen_is_what_the_group_runs_and_two_answers_are_none() -> None:
    made = merge(group(member("a"), assignor="stream"), [seen(EAGER)])
    assert group_protocol(made).value is EAGER
    assert merge(made, [seen(EAGER)]) == made
    told = merge(made, [replace(seen(EAGER, Source.CLIENT_LOG), upgrade_from="2.3")])
    assert "upgrade.from=2.3" in group_protocol(told).why
    both = merge(made, [seen(COOPERATIVE, Source.CLIENT_LOG)])
    assert both.members[0].ran is None
    assert "EAGER and COOPERATIVE" in both.contradictions[0].what
    assert group_protocol(both).value is RebalanceProtocol.CANNOT_TELL


def test_kept_partitions_outweigh_an_assignment_that_may_never_have_arrived() -> None:
    before = group(member("a", COOP), assignor=COOP)
    assert group_protocol(before).value is COOPERATIVE
    eager = merge(before, [seen(EAGER)])
    assert group_protocol(eager).value is EAGER
    assert "gave up all its partitions" in group_protocol(eager).why
    for kept in (
        merge(eager, [seen(COOPERATIVE)]),
        merge(group(member("a", COOP, subscription=KEPT), assignor=COOP), [seen(EAGER)]),
    ):
        assert group_protocol(kept).value is COOPERATIVE
        assert kept.contradictions == ()
