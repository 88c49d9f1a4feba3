"""Logs of several pods in one stream: a list is tied to a member id only if it must be its own."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.evidence.observations import Refused
from tests.examples import examples
from tests.inspectors import logs
from tests.inspectors.logs import COOP, RANGE, STAMP, Pod, of_kind, read_clients


def lists(*streams: list[str]) -> dict[str, tuple[str, ...]]:
    return logs.lists(read_clients(*streams))


def test_a_start_that_is_cut_off_does_not_borrow_another_pod_s_list() -> None:
    a, b = Pod("a", RANGE), Pod("b", COOP, RANGE)
    a.start()
    start = b.start()
    # a rejoins while b joins, and nothing of a's own start is there.
    assert lists([*start[:-1], *a.rejoin(), start[-1]]) == {}
    # b has not joined yet, or was rejected: only a's join is in the log.
    assert lists([*start[:2], *a.rejoin()]) == {}
    assert lists([*b.rejected(), *a.rejoin()]) == {}
    # Another line that says so was filtered out: a's id was not given to it in this stream.
    assert lists([*start[:2], a.rejoin()[-1]]) == {}
    # There are more member ids than configurations.
    reading = read_clients([*start, *a.rejoin()])
    assert reading.observations == ()
    assert "--prefix" in reading.notes[0]


@pytest.mark.parametrize("version", ["2.8.2", "3.1.2", "3.9.1"])
def test_pods_that_start_one_after_the_other_are_told_apart(version: str) -> None:
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
def test_restarts_in_one_file_are_told_apart(static: str) -> None:
    a, b = Pod("a", RANGE, static=static), Pod("b", COOP, static=static)
    killed = [*a.start(), *a.rejoin(), *b.start(), *b.rejoin()]
    assert lists(killed) == {"a-1": (RANGE,), "b-1": (COOP,)}
    closed = [*a.start(), *a.close(), *b.start()]
    assert lists(closed) == {"a-2": (RANGE,), "b-2": (COOP,)}
    # A rotated file begins within a's life; b's is whole.
    rotated = [*a.rejoin(), *a.close(), *b.start()]
    assert lists(rotated) == {"b-3": (COOP,)}


def test_the_next_id_of_a_client_that_lost_one_has_the_same_list() -> None:
    a = Pod("a", COOP)
    assert lists([*a.start(), *a.lose()]) == {"a-1": (COOP,), "a-2": (COOP,)}


def test_a_static_member_s_list_is_its_instance_s() -> None:
    a, b = Pod("a", RANGE, static="i-0"), Pod("b", COOP, static="i-1")
    both = [a.config(), b.config(), *b.start()[1:], *a.start()[1:]]
    assert lists(both) == {"a-1": (RANGE,), "b-1": (COOP,)}
    # A fenced client was a member: it keeps its list.
    fenced = f"{a._who}JoinGroup failed due to fatal error: The group instance id i-0 is fenced"
    assert lists([*both, fenced]) == {"a-1": (RANGE,), "b-1": (COOP,)}


def test_a_rejection_has_the_list_of_its_own_client() -> None:
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
def test_no_merged_log_gives_a_member_another_pod_s_list(
    version: str,
    pods: list[tuple[tuple[str, ...], list[str], str]],
    cuts: list[tuple[int, int]],
    merging: tuple[random.Random, bool],
) -> None:
    """Each pod's log begins at any of its deeds and ends at any line."""
    order, mixed = merging
    streams: list[list[str]] = []
    truth: dict[str, tuple[str, ...]] = {}
    for number, (names, deeds, end) in enumerate(pods):
        pod = Pod(f"p{number}", *names, version=version)
        lived = [pod.rejected() if end == "reject" else pod.start()]
        lived += [getattr(pod, deed)() for deed in (() if end == "reject" else deeds)]
        lived += [pod.close()] if end == "close" else []
        truth |= {f"p{number}-{each}": names for each in range(1, 6)}
        first, last = cuts[number]
        streams.append([line for deed in lived[first:] for line in deed][:last])
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


def test_the_leaders_line_names_members_that_print_no_id() -> None:
    group = OldGroup()
    group.start(0, RANGE)
    group.start(1, COOP, RANGE)
    group.start(2, RANGE, COOP)
    group.start(1, COOP)
    group.end(0, killed=False)
    group.start(0, COOP)
    assert lists(*group.logs) == group.truth
    # The leader's log is missing: nobody's id is known.
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
def test_no_leaders_line_gives_a_member_another_pod_s_list(
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
