"""Whose list a line shows: of pods in one stream, of programs of Streams, of Connect workers."""

import base64
import random
from string import Template

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rebal.groups.clients import worker_list
from rebal.groups.compact import Partitions
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Joined, Ran, Refused
from rebal.groups.model import Evidence, RebalanceProtocol, Source, Subscription
from rebal.groups.protocol import group_protocol
from rebal.groups.wire.consumer_protocol import ConsumerAssignment
from tests.encoders import encode_assignment, encode_subscription
from tests.examples import examples
from tests.groups.observed import KEPT, group, member
from tests.inspectors import logs
from tests.inspectors.logs import COOP, DATA, RANGE, STAMP, Pod, of_kind, read_clients
from tests.inspectors.test_request_log import body, line, read


def lists(*streams: list[str]) -> dict[str, tuple[str, ...]]:
    return logs.lists(read_clients(*streams))


def test_a_member_whose_start_is_missing_gets_no_other_pods_assignor_list() -> None:
    a, b = Pod("a", RANGE), Pod("b", COOP, RANGE)
    a.start()
    start = b.start()
    # a rejoins while b joins, and no line of a's own start is in the log.
    assert lists([*start[:-1], *a.rejoin(), start[-1]]) == {}
    # b has not joined yet, or was rejected: only a's join is in the log.
    assert lists([*start[:2], *a.rejoin()]) == {}
    assert lists([*b.rejected(), *a.rejoin()]) == {}
    # The line that gave a its member id was filtered out of this stream.
    assert lists([*start[:2], a.rejoin()[-1]]) == {}
    # There are more member ids than configurations.
    reading = read_clients([*start, *a.rejoin()])
    assert reading.observations == ()
    assert "--prefix" in reading.notes[0]


@pytest.mark.parametrize("version", ["2.8.2", "3.1.2", "3.9.1"])
def test_pods_that_start_in_sequence_get_their_own_assignor_lists(version: str) -> None:
    a, b = Pod("a", RANGE, version=version), Pod("b", COOP, version=version)
    truth = {"a-1": (RANGE,), "b-1": (COOP,)}
    both = [*a.start(), *b.start()]
    assert lists(both) == truth
    # Where the coordinator's answer is not printed, one of two clients may be without its start.
    assert lists([*both, a.joined()]) == ({} if version == "2.8.2" else truth)
    mixed = [a.config(), b.config(), *a.start()[1:], *b.start()[1:]]
    assert lists(mixed) == {}
    same = Pod("c", RANGE, version=version)
    alike = [a.config(), same.config(), *a.start()[1:], *same.start()[1:]]
    assert set(lists(alike).values()) == {(RANGE,)}


@pytest.mark.parametrize("static", ["", "i-0"])
def test_restarts_in_one_client_log_get_their_own_assignor_lists(static: str) -> None:
    a, b = Pod("a", RANGE, static=static), Pod("b", COOP, static=static)
    killed = [*a.start(), *a.rejoin(), *b.start(), *b.rejoin()]
    assert lists(killed) == {"a-1": (RANGE,), "b-1": (COOP,)}
    closed = [*a.start(), *a.close(), *b.start()]
    assert lists(closed) == {"a-2": (RANGE,), "b-2": (COOP,)}
    # A rotated file begins within a's life; b's is whole.
    rotated = [*a.rejoin(), *a.close(), *b.start()]
    assert lists(rotated) == {"b-3": (COOP,)}


def test_a_client_that_gets_a_new_member_id_keeps_its_assignor_list() -> None:
    a = Pod("a", COOP)
    assert lists([*a.start(), *a.lose()]) == {"a-1": (COOP,), "a-2": (COOP,)}


def test_a_static_members_assignor_list_is_found_by_its_instance_id() -> None:
    a, b = Pod("a", RANGE, static="i-0"), Pod("b", COOP, static="i-1")
    both = [a.config(), b.config(), *b.start()[1:], *a.start()[1:]]
    assert lists(both) == {"a-1": (RANGE,), "b-1": (COOP,)}
    # A fenced client was a member: it keeps its list.
    fenced = f"{a._who}JoinGroup failed due to fatal error: The group instance id i-0 is fenced"
    assert lists([*both, fenced]) == {"a-1": (RANGE,), "b-1": (COOP,)}


def test_a_rejection_has_the_assignor_list_of_its_own_client() -> None:
    a, b = Pod("a", RANGE), Pod("b", COOP)
    for start, names in ((a.start(), (COOP,)), ([a.config()], ())):
        (seen,) = of_kind(read_clients([*start, *b.rejected()]), Refused)
        assert seen.list == names


def interleaved(streams: list[list[str]], order: random.Random) -> list[str]:
    """The lines of all streams in an order that keeps each stream's own."""
    picks = [n for n, lines in enumerate(streams) for _ in lines]
    order.shuffle(picks)
    waiting = [iter(lines) for lines in streams]
    return [next(waiting[n]) for n in picks]


POD = st.tuples(
    st.sampled_from([(RANGE,), (COOP,), (COOP, RANGE)]),
    st.lists(st.sampled_from(["rejoin", "lose"]), max_size=3),
    st.sampled_from(["", "close", "reject"]),
)


@examples(80, full=200)
@given(
    st.sampled_from(["2.8.2", "3.1.2", "3.9.1"]),
    st.lists(POD, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), min_size=4, max_size=4),
    st.tuples(st.randoms(use_true_random=False), st.booleans()),
)
def test_no_merged_log_gives_a_member_another_pods_assignor_list(
    version: str,
    pods: list[tuple[tuple[str, ...], list[str], str]],
    cuts: list[tuple[int, int]],
    merging: tuple[random.Random, bool],
) -> None:
    """Each pod's log begins at any of its actions and ends at any line."""
    order, mixed = merging
    streams: list[list[str]] = []
    truth: dict[str, tuple[str, ...]] = {}
    for number, (names, actions, end) in enumerate(pods):
        pod = Pod(f"p{number}", *names, version=version)
        life = [pod.rejected() if end == "reject" else pod.start()]
        life += [getattr(pod, action)() for action in (() if end == "reject" else actions)]
        life += [pod.close()] if end == "close" else []
        truth |= {f"p{number}-{each}": names for each in range(1, 6)}
        first, last = cuts[number]
        streams.append([line for action in life[first:] for line in action][:last])
    if mixed:
        merged = interleaved(streams, order)
    else:
        order.shuffle(streams)
        merged = [line for lines in streams for line in lines]
    assert lists(merged).items() <= truth.items()


class OldGroup:
    """A group of kafka-clients 2.5.1 members of one client id, and each pod's log of it."""

    def __init__(self) -> None:
        self.logs: list[list[str]] = []
        self.truth: dict[str, tuple[str, ...]] = {}
        self._alive: dict[int, str] = {}
        self._answered: set[int] = set()
        self._generation = 0
        self._second = 0

    def start(self, pod: int, *assignors: str, answered: bool = True) -> None:
        """Start or restart a pod, in its own log."""
        while len(self.logs) <= pod:
            self.logs.append([])
        self._alive.pop(pod, None)
        made = Pod("-", *assignors, version="2.5.1").config()
        self._print(pod, made.replace("client.id = consumer-g-1", "client.id = "), who=False)
        self._print(pod, "Subscribed to topic(s): t")
        self._print(pod, "Cluster ID: c1")
        member_id = f"consumer-g-1-{len(self.truth):08x}-0000-4000-8000-000000000000"
        self.truth[member_id] = assignors
        self._print(pod, "(Re-)joining group")
        self.rebalance({pod: member_id}, answered=answered)

    def rebalance(self, new: dict[int, str] | None = None, *, answered: bool = True) -> None:
        """Let all members join a new generation; the first one is the leader."""
        self._generation += 1
        self._second += 1
        # A client whose SyncGroup fails says nothing, and joins again.
        for pod in self._alive.keys() & self._answered:
            self._print(pod, "Attempt to heartbeat failed since group is rebalancing")
        self._alive |= new or {}
        for pod in self._alive:
            self._print(pod, "(Re-)joining group")
        members = ", ".join(f"{each}=Assignment(partitions=[t-0])" for each in self._alive.values())
        if self._alive:
            leader = next(iter(self._alive))
            made = f"Finished assignment for group at generation {self._generation}: {{{members}}}"
            self._print(leader, made)
        self._answered = set(self._alive) if answered else set()
        for pod in self._answered:
            self._print(pod, f"Successfully joined group with generation {self._generation}")

    def end(self, pod: int, *, killed: bool) -> None:
        """End a pod's member; a killed one prints nothing."""
        member_id = self._alive.pop(pod, None)
        if member_id is None:
            return
        if not killed:
            said = f"Member {member_id} sending LeaveGroup request to coordinator h:9092 due to "
            self._print(pod, f"{said}the consumer is being closed")
        self.rebalance()

    def _print(self, pod: int, text: str, *, who: bool = True) -> None:
        context = "[Consumer clientId=consumer-g-1, groupId=g] " if who else ""
        stamp = STAMP.replace(":00,", f":{self._second:02d},") + " "
        self.logs[pod].append(f"{stamp if who else ''}{context}{text}")


def test_the_leaders_log_line_names_members_that_log_no_member_id() -> None:
    group = OldGroup()
    group.start(0, RANGE)
    group.start(1, COOP, RANGE)
    group.start(2, RANGE, COOP)
    group.start(1, COOP)
    group.end(0, killed=False)
    group.start(0, COOP)
    assert lists(*group.logs) == group.truth
    # The leader's log is missing: no member id is known.
    assert lists(group.logs[1]) == {}


STEP = st.tuples(
    st.sampled_from(["start", "start", "unanswered", "rebalance", "close", "kill"]),
    st.integers(0, 2),
    st.sampled_from([(RANGE,), (COOP,), (COOP, RANGE)]),
)


@examples(80, full=200)
@given(
    st.lists(STEP, max_size=8),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), min_size=3, max_size=3),
    st.sampled_from(["own logs", "merged", "one after the other"]),
    st.randoms(use_true_random=False),
)
def test_no_leaders_log_line_gives_a_member_another_pods_assignor_list(
    steps: list[tuple[str, int, tuple[str, ...]]],
    cuts: list[tuple[int, int]],
    form: str,
    order: random.Random,
) -> None:
    group = OldGroup()
    for what, pod, names in steps:
        if what in ("start", "unanswered"):
            # Open: a pod's start may be hidden where cut logs stand one after the other.
            answered = what == "start" or form == "one after the other"
            group.start(pod, *names, answered=answered)
        elif what == "rebalance":
            group.rebalance()
        else:
            group.end(pod, killed=what == "kill")
    if form != "own logs":
        # An end without its start that goes on just where another pod's log ends looks like one.
        cuts = [(0, last) for _, last in cuts]
    ends = zip([*group.logs, []], cuts, strict=False)
    streams = [log[first : first + last] for log, (first, last) in ends]
    if form == "merged":
        streams = [interleaved(streams, order)]
    elif form == "one after the other":
        streams = [[line for lines in streams for line in lines]]
    assert lists(*streams).items() <= group.truth.items()


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
def test_a_kafka_streams_log_shows_upgrade_from_and_the_protocol_it_runs(
    name: str, value: RebalanceProtocol, setting: str
) -> None:
    text = (STREAMS / f"streams-{name}.log").read_text()
    older = text.replace("rebalancing protocol is enabled now", "rebalancing enabled now")
    # The configuration shows as much as the assignor's own line, if the version is known.
    configured = without(text, "AssignorConfiguration")
    assert printed(text) == printed(older) == printed(configured) == [(value, setting)]
    assert printed(without(configured, "AppInfoParser")) == []
    # Without the block only the assignor's own line is left, which 4.0 and later do not print.
    bare = text[text.index("AdminClientConfig values") :]
    known = [(value, setting if value is EAGER else None)]
    assert printed(bare) == ([] if name.startswith("4") else known)


def test_upgrade_from_belongs_to_the_members_own_streams_application() -> None:
    eager, cooperative = (
        (STREAMS / f"streams-3.9.1-{name}.log").read_text() for name in ("2.3", "unset")
    )
    # Two applications built before either joined cannot be distinguished.
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
    # Clients before 3.0 do not print the given member id: the second value stays open.
    older = without(again.replace("3.9.1\n", "2.8.2\n"), "given member-id")
    assert printed(older)[:1] == [(EAGER, "2.3")]


def test_a_streams_application_without_a_client_id_is_known_by_its_application_id() -> None:
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
def test_a_connect_workers_log_shows_its_protocol(client: str, protocol: str) -> None:
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


def handed(partitions: list[int], generation: int, topic: str = "t") -> str:
    made = encode_assignment(
        ConsumerAssignment(version=3, partitions={topic: Partitions(partitions)})
    )
    answer = {"assignment": base64.b64encode(made).decode()}
    return request("SYNC_GROUP", {"generationId": generation}, answer)


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ([joining({}, -1), handed([0, 1], 1), joining({}, 1)], [EAGER]),
        ([joining(OWNED, 1)], [COOPERATIVE]),
        # No partition was assigned, or the assignment is not of the generation before.
        ([handed([], 1), joining({}, 1)], []),
        ([handed([0], 1), joining({}, 2)], []),
        # An EAGER assignor list is proof already: owned partitions add nothing.
        ([handed([0], 1), joining({}, 1, name="range")], []),
        # A class of the application's own may stand behind a name that is not EAGER.
        ([handed([0], 1), joining({}, 1, name=COOP)], [EAGER]),
        ([handed([0], 1), joining({}, 1, name="acme")], [EAGER]),
        # The member no longer subscribes to that topic, or never received that assignment.
        ([handed([0], 1, topic="u"), joining({}, 1, name=COOP)], []),
        ([handed([0], 1), joining(OWNED, 1, COOP), handed([0], 2), joining({}, 2, COOP)], []),
        ([handed([0], 1), joining({}, 1, COOP), joining(OWNED, 2, COOP)], [EAGER, COOPERATIVE]),
        # franz-go follows the vote: what it does in one generation proves nothing of the next.
        ([handed([0], 1), joining({}, 1, name=COOP, software="kgo")], []),
        ([request("SYNC_GROUP", {"generationId": 1}, {"assignment": "?"}), joining({}, 1)], []),
    ],
)
def test_partitions_a_member_keeps_or_revokes_show_its_protocol(
    lines: list[str], values: list[RebalanceProtocol]
) -> None:
    assert [one.value for one in of_kind(read(*lines), Ran)] == values


def seen(value: RebalanceProtocol, source: Source = Source.REQUEST_LOG) -> Ran:
    evidence = Evidence(source=source, detail=str(value))
    return Ran(group_id="g", member_id="a-id", value=value, evidence=evidence)


def test_an_observed_protocol_is_what_the_group_runs_unless_two_conflict() -> None:
    made = merge(group(member("a"), assignor="stream"), [seen(EAGER)])
    assert group_protocol(made).value is EAGER
    assert merge(made, [seen(EAGER)]) == made
    with_setting = merge(made, [replace(seen(EAGER, Source.CLIENT_LOG), upgrade_from="2.3")])
    assert "upgrade.from=2.3" in group_protocol(with_setting).why
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
