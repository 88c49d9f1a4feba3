"""What an operator can read of a simulated group: sources rendered as text and bytes, really read.

The description, the probe and the offsets topic are of this moment; logs are what `Book` holds of
them, cut, merged, in another time zone or beside another cluster's. Everything goes through the
readers that a live look uses.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from rebal.groups.compact import NO_LAG
from rebal.groups.evidence import merge as merging
from rebal.groups.evidence.observations import LogRead, Observation
from rebal.groups.model import (
    Cluster,
    GroupSnapshot,
    GroupState,
    GroupType,
    Member,
    Probe,
    ProbeAnswer,
    Topic,
    Tri,
)
from rebal.groups.wire.offsets_topic import decode_group_metadata
from rebal.inspectors import clock
from rebal.inspectors.files import TextInput
from rebal.inspectors.kafka import describe, reload, snapshots
from rebal.inspectors.logs.client import lines as client_lines
from rebal.inspectors.logs.client import reader as client_logs
from rebal.inspectors.logs.requests import reader as request_logs
from rebal.inspectors.logs.requests.lines import parse
from rebal.planner.rehearsal.engine.consumer_group import ConsumerGroup
from rebal.planner.rehearsal.engine.coordinator import ClassicGroup
from rebal.planner.rehearsal.engine.group import SimulatedGroup
from tests.search.histories import Evidence
from tests.search.sources import (
    BEGAN,
    GROUP,
    INCOMPATIBLE,
    TOPIC,
    Book,
    Life,
    OffsetsRecord,
    assignment_bytes,
    by_topic,
    life_of,
    subscription_bytes,
)

CLUSTER = "here"
_FLAKY = 0.3
_Read = tuple[list[Observation], list[LogRead]]
_kept = lru_cache(maxsize=1 << 14)
# A line is what it is: most of a log was read at the look before.
vars(request_logs)["parse"] = _kept(parse)
vars(client_lines).update(
    WANTED=SimpleNamespace(search=_kept(client_lines.WANTED.search)),
    event_of=_kept(client_lines.event_of),
)


class NamedText(io.BytesIO):
    """A text in memory with the name of the file that it stands for."""

    def __init__(self, name: str, lines: Sequence[bytes]) -> None:
        super().__init__(b"".join(lines))
        self.name = name


class Operator:
    """Whoever looks at the group: the sources at hand, from now on or in part.

    `random` decides which probes fail. `foreign` are the books of other clusters whose logs lie
    among those of this one, `declared` the service's configuration files.
    """

    def __init__(
        self,
        group: SimulatedGroup,
        book: Book,
        given: Evidence,
        *,
        partitions: int,
        cluster: Cluster,
        random: Random,
        foreign: Sequence[Book] = (),
        declared: Callable[[], Iterable[Observation]] = tuple,
    ) -> None:
        self.kinds = set(given.kinds)
        self.merged = given.merged
        self.partitions = partitions
        self._group, self._book, self._given = group, book, given
        self._cluster = cluster
        self._foreign = foreign
        self._declared = declared
        self._requests_from: dict[int, int] = {}
        self._lives_from: dict[int, int] = {}
        self._already: dict[tuple[str, int], _Read] = {}
        self._random = random

    # --- which evidence there is -----------------------------------------------------------------

    def cut(self) -> None:
        self._already.clear()
        self._requests_from = {n: len(lines) for n, lines in self._book.requests.items()}
        self._lives_from = {id(life): len(life.lines) for life in self._book.lives}

    def grant(self, kind: str) -> bool:
        """Give one more source, whole, from now on; False where nothing is added."""
        had = kind in self.kinds
        cuts = {"request log": self._requests_from, "client log": self._lives_from}.get(kind, {})
        was_cut = any(cuts.values())
        cuts.clear()
        self._already.clear()
        self.kinds.add(kind)
        return not had or was_cut

    @property
    def _zone(self) -> timedelta | None:
        """The zone of the logs, where the operator names it."""
        return timedelta(hours=self._given.shift) if "log timezone" in self.kinds else None

    # --- a look ---------------------------------------------------------------------------------

    def _now(self) -> datetime:
        """Return the time of rebal's own clock."""
        return self._book.moment() + timedelta(seconds=self._given.skew)

    @property
    def _ahead(self) -> timedelta | None:
        """How far rebal measures its clock to be ahead of the brokers'."""
        theirs, now = self._book.moment(), self._now()
        return clock.ahead_of(theirs, now, now) if self._given.measured else None

    def _moment(self) -> datetime:
        """Return the brokers' time as far as rebal knows it."""
        return self._now() - (self._ahead or timedelta())

    def look(self) -> GroupSnapshot:
        return merging.merge(self._described(), self._observations())

    def _described(self) -> GroupSnapshot:
        group, book = self._group.now, self._book
        if isinstance(group, ConsumerGroup):
            described = self._kip848(group)
        else:
            stable = group.phase is GroupState.STABLE
            described = describe.Described(
                group_id=GROUP,
                type=GroupType.CLASSIC,
                state=group.phase,
                at=self._moment(),
                coordinator_id=book.broker,
                protocol_type="consumer" if group.size else "",
                assignor=group.assignor if stable else None,
                members=tuple(self._members(stable=stable)),
            )
        snapshot = snapshots.snapshot_of(
            described,
            address=(book.address, 9092, None),
            cluster=self._cluster,
            topics=(Topic(name=TOPIC, partitions=self.partitions),),
            lag=NO_LAG,
        )
        ahead = self._ahead
        ahead_ms = round((ahead or timedelta()) / timedelta(milliseconds=1))
        snapshot = replace(snapshot, clock_ahead_ms=ahead_ms, clock_compared=ahead is not None)
        probes = "probe" in self.kinds and not self._group.kip848
        return self._probed(snapshot) if probes else snapshot

    def _kip848(self, group: ConsumerGroup) -> describe.Described:
        """Return what ConsumerGroupDescribe answers."""
        return describe.Described(
            group_id=GROUP,
            type=GroupType.CONSUMER,
            state=group.phase,
            at=self._moment(),
            coordinator_id=self._book.broker,
            protocol_type="consumer",
            assignor=group.assignor,
            group_epoch=group.number,
            assignment_epoch=group._made_for,
            members=tuple(
                Member(
                    member_id=one.member_id,
                    client_id=life_of(one.client).process.client_id,
                    host=f"/{life_of(one.client).host}",
                    instance_id=one.instance_id,
                    subscribed_topics=one.topics,
                    assignment=by_topic(sorted(one.assigned)),
                    target_assignment=by_topic(sorted(one.target)),
                    member_epoch=one.epoch,
                    protocol_type="consumer" if one.request is None else "classic",
                )
                for one in sorted(group.members, key=lambda each: each.member_id)
            ),
        )

    def _members(self, *, stable: bool) -> Iterator[Any]:
        group = self._group.now
        assert isinstance(group, ClassicGroup)
        for member_id, member in sorted(group._members.items()):
            life = life_of(member.client)
            data = subscription_bytes(life.process, member.request, group.assignor or "")
            yield describe._classic_member(
                SimpleNamespace(
                    member_id=member_id,
                    client_id=life.process.client_id,
                    client_host=f"/{life.host}",
                    group_instance_id=life.process.instance_id,
                    member_metadata=data if stable else b"",
                    member_assignment=assignment_bytes(member.partitions) if stable else b"",
                ),
                parsed=True,
            )

    def _probed(self, snapshot: GroupSnapshot) -> GroupSnapshot:
        group, elected = self._group.now, snapshot.group.assignor
        if group.phase is not GroupState.STABLE:
            return replace(snapshot, probe=Probe(refused="it is not Stable"))
        lists = list(group.lists().values())
        asked = snapshots.assignors_to_ask(elected, ())
        yes = [name for name in asked if all(name in each for each in lists)]
        at = self._moment()
        answers = tuple(
            ProbeAnswer(assignor=name, supported=Tri.YES if name in yes else Tri.NO, at=at)
            for name in asked
        )
        if self._given.flaky and self._random.random() < _FLAKY:
            return replace(snapshot, probe=self._failed(answers))
        reading = reload.proven_by_probe(self._stored(), elected, yes)
        return snapshots._with_reading(replace(snapshot, probe=Probe(answers=answers)), reading)

    def _failed(self, answers: Sequence[ProbeAnswer]) -> Probe:
        """Return a probe that failed: void answers, or a request that got none."""
        if self._random.random() < 0.5:
            # Between two members' joins the lists are others: what it was told holds no more.
            void = tuple(replace(one, supported=Tri.YES) for one in answers)
            return Probe(answers=void, refused="its members changed while it was probed")
        none = (
            replace(one, supported=Tri.CANNOT_TELL, error="REQUEST_TIMED_OUT") for one in answers
        )
        return Probe(answers=tuple(none))

    def _stored(self) -> reload.Reading:
        """Return what the group's records prove, as the reader of `__consumer_offsets` says."""
        if "offsets topic" not in self.kinds:
            return reload.Reading(Tri.CANNOT_TELL, "no right to read __consumer_offsets")
        book = self._book
        first = [_record(n, one) for n, one in enumerate(book.records) if one.epoch < book.epoch]
        since = [_record(n, one) for n, one in enumerate(book.records) if one.epoch == book.epoch]
        if not book.epoch:
            # As the reader says of a partition whose first leader still leads it.
            newest = since[-1].value if since else None
            return reload.Reading(Tri.YES, "leader epoch 0", newest, epoch=0)
        began_ms = round((BEGAN + timedelta(seconds=book.loaded_at)).timestamp() * 1000)
        found = reload.judge(
            since, began_ms, lambda: reload.Earlier(first, whole=True), f"leader epoch {book.epoch}"
        )
        return found._replace(epoch=book.epoch, loaded_ms=began_ms)

    # --- logs -----------------------------------------------------------------------------------

    def _observations(self) -> list[Observation]:
        found: list[Observation] = []
        now = self._now()
        if "inventory" in self.kinds:
            found += self._declared()
        # Nobody keeps the dates of files that were copied or written by a pipe.
        written = self._book.moment() if self._given.dated else None
        if "request log" in self.kinds:
            reading = request_logs.read_request_log(self._request_logs(), tz_offset=self._zone)
            found += reading.observations
            found += (replace(log, read_at=now, written_at=written) for log in reading.logs)
        if "client log" in self.kinds:
            for seen, logs in self._read_client_logs():
                found += seen
                found += (replace(log, read_at=now, written_at=written) for log in logs)
        return found

    def _read_client_logs(self) -> Iterator[_Read]:
        """Yield what each log shows; a file that has not grown is not read again."""
        texts = self._client_logs()
        if self._book.own or len(texts) == 1:
            # Only all logs together name a class of the application.
            yield self._read(*texts)
            return
        for text in texts:
            key = text.name, len(text.getbuffer())
            if key not in self._already:
                self._already[key] = self._read(text)
            yield self._already[key]

    def _read(self, *texts: NamedText) -> _Read:
        reader = client_logs._Reader(self._zone)
        for text in texts:
            reader.read(TextInput(text))
        reader.end()
        return list(map(reader.named, reader.found)), reader.logs

    def request_lines(self) -> dict[int, list[bytes]]:
        return {number: self._lines(number) for number in sorted(self._book.requests)}

    def _lines(self, broker: int) -> list[bytes]:
        return self._book.requests.get(broker, [])[self._requests_from.get(broker, 0) :]

    def _request_logs(self) -> list[NamedText]:
        parts = [
            NamedText(f"broker-{number}/requests.log", lines)
            for number, lines in self.request_lines().items()
        ]
        parts += [
            NamedText(f"other-{n}/requests.log", lines)
            for n, book in enumerate(self._foreign)
            for lines in book.requests.values()
        ]
        if self.merged:
            return [NamedText("all/requests.log", [part.getvalue() for part in parts])]
        return parts

    @property
    def _dates(self) -> bool:
        """True where it is plain when each line was written."""
        given = self._given
        return given.dated and not (given.shift or given.skew or given.drift)

    def shows_join(self, life: Life) -> bool:
        """Return whether a log at hand shows for certain, and when, that this life joined."""
        return self._dates and self._shown(life, b'"errorCode":0,"generationId"')

    def shows_list(self, life: Life) -> bool:
        """Return whether a log at hand binds this life's list to its member id for certain."""
        return self._shown(life, b'"protocols":[{')

    def _shown(self, life: Life, words: bytes) -> bool:
        id_, given = life.member_id.encode(), self._given
        if not id_ or self.merged or given.prefixed or given.foreign:
            return False
        if self._has_whole_log(life) and not self._follows_a_cut_life(life):
            return any(b"Successfully joined" in one and id_ in one for one in life.lines)
        lines = self._lines(self._book.broker)
        # A leader's answer names the other members, too.
        joins = (one for one in lines if b"JOIN_GROUP" in one and id_ in one.split(b'"members"')[0])
        return "request log" in self.kinds and any(words in one for one in joins)

    def _has_whole_log(self, life: Life) -> bool:
        return "client log" in self.kinds and not self._lives_from.get(id(life), 0)

    def _follows_a_cut_life(self, life: Life) -> bool:
        """Return whether its log begins within another process, whose end it does not show.

        Both may run in one log, so that it does not tell for certain whose each member id is.
        """
        file = life.host, life.process.name
        others = [one for one in self._book.lives if (one.host, one.process.name) == file]
        cut = [one.lines[first:] for one in others if (first := self._lives_from.get(id(one), 0))]
        return any(lines and not any(b"LeaveGroup" in line for line in lines) for lines in cut)

    def shows_rejection(self, life: Life) -> bool:
        """Return whether a log at hand, which is certainly the group's, shows its rejected join.

        A former coordinator's log shows no member of now once all have been restarted.
        """
        found: list[bytes] = []
        if "request log" in self.kinds:
            address = f"-{life.host}:{life.port}-".encode()
            lines = self._lines(self._book.broker)
            found += [one for one in lines if address in one and b'"errorCode":23,' in one]
        if self._has_whole_log(life):
            found += [one for one in life.lines if INCOMPATIBLE.encode() in one]
        return bool(found)

    def _client_logs(self) -> list[NamedText]:
        given = self._given
        lives = [
            (life, life.lines[self._lives_from.get(id(life), 0) :]) for life in self._book.lives
        ]
        lives += [(life, life.lines) for book in self._foreign for life in book.lives]
        if given.prefixed:
            marked = [life.pod.encode() + b" " + line for life, lines in lives for line in lines]
            return [NamedText("pods.log", marked)]
        if self.merged:
            # Nobody can tell two clusters apart in one stream without marks.
            own, others = lives[: len(self._book.lives)], lives[len(self._book.lives) :]
            return [
                NamedText(name, [line for _, lines in some for line in lines])
                for name, some in (("pods.log", own), ("others.log", others))
                if some
            ]
        # A pod that restarts goes on in its file.
        pods: dict[str, list[bytes]] = {}
        for life, lines in lives:
            pods.setdefault(f"{life.host}-{life.process.name}.log", []).extend(lines)
        return [NamedText(name, lines) for name, lines in pods.items()]


def _record(offset: int, record: OffsetsRecord) -> reload.StoredGroup:
    return reload.StoredGroup(offset, decode_group_metadata(record.value))
