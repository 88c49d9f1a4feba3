"""Logs of Java clients: each member id with the configuration that its client printed at start-up.

A Java consumer prints `ConsumerConfig values:` when it is built, which fixes its assignor list,
then `Kafka version:`, and `Successfully joined group with generation …` at each rebalance, with its
member id since 2.4. Together these lines give one member's exact list. If one stream mixes several
clients without a mark, their lists stay unknown (identity.py). For a custom assignor the class is
printed; its name in JoinGroup is known only if a join shows it (`ClassNames`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import assignor_of, family_of
from rebal.groups.evidence.observations import (
    Joined,
    Left,
    LogRead,
    Observation,
    Ran,
    Rebalanced,
    Refused,
    Where,
)
from rebal.groups.model import Evidence, RebalanceProtocol, Software
from rebal.groups.streams import protocol_by_setting
from rebal.inspectors.files import TextInput, files_in
from rebal.inspectors.logs.client import lines
from rebal.inspectors.logs.client.identity import LeaderMemberLists, ProgramClients, is_nameless
from rebal.inspectors.logs.client.lines import (
    NEEDED,
    WANTED_TEXT,
    ClassNames,
    ClientLine,
    Config,
    Configs,
    Lookup,
    own_classes,
)
from rebal.inspectors.logs.client.wrappers import Wrappers
from rebal.inspectors.logs.families import OtherClients
from rebal.inspectors.logs.lines import Block, LogReading, LogText, Part, Zone, numbered

_JAVA: Final = "apache-kafka-java"


def read_client_logs(paths: Sequence[Path], tz_offset: Zone = None) -> LogReading:
    """Return the joins, rejections, leaves and rebalances that Java and other clients logged.

    A directory stands for its files, `-` for standard input. The output of log collectors and
    stores is accepted (wrappers.py), and gz. A time without a zone has the offset `tz_offset` from
    UTC. If that is None, the time is stored as if it were UTC, and the observation is marked
    `local`.

    Raises:
        DocumentError: a path cannot be read. Lines without meaning are skipped.
    """
    reader = _Reader(tz_offset)
    unrelated: list[str] = []
    for path in files_in(paths):
        source = TextInput(path)
        before = len(reader.logs)
        reader.read(source)
        if source.cut_off:
            reader.notes.setdefault(
                f"{source.name}: the gz data ends too early; fetch the file again."
            )
        if len(reader.logs) == before:
            unrelated.append(source.name)
    reader.end()
    if unrelated:
        more = f" and {len(unrelated) - 3} more" if len(unrelated) > 3 else ""
        reader.notes.setdefault(
            f"--client-log: {', '.join(unrelated[:3])}{more}: no line is one that a consumer "
            "prints about its group. Give its log from its start on, at level INFO."
        )
    return LogReading(
        observations=(*map(reader.named, reader.found), *reader.others),
        logs=tuple(reader.logs),
        notes=tuple(reader.notes),
    )


class _Program(Part):
    def __init__(self, source: TextInput, name: str) -> None:
        super().__init__(source, LogRead(log=name, origin=name, kind="client"))
        self.configs = Configs()
        self.clients = ProgramClients()
        self.assignors: dict[tuple[str, str], str | None] = {}
        self.rejected = False
        self.failing: dict[tuple[str, str], ClientLine] = {}
        self.built: dict[str, list[tuple[ClientLine, Evidence]]] = {}
        self.builds: Counter[str] = Counter()
        self.ran: set[tuple[str, str]] = set()


class _Reader:
    def __init__(self, tz_offset: Zone) -> None:
        self.logs: list[LogRead] = []
        self.found: list[Observation] = []
        # Of clients that are not Java: they name assignors themselves.
        self.others: list[Observation] = []
        # Functions make the observations that need the whole stream.
        self._pending: list[Observation | Callable[[], Observation | None]] = []
        self._classes = ClassNames()
        # A dict keeps equal sentences once, in order.
        self.notes: dict[str, None] = {}
        self._tz_offset = tz_offset
        self._member_lists = LeaderMemberLists()
        self._programs: list[_Program] = []
        # Source → the line of its first configuration that was not understood.
        self._unread_of: dict[str, int] = {}

    def read(self, source: TextInput) -> None:
        wrappers = Wrappers(WANTED_TEXT, self._tz_offset)
        programs: dict[str, _Program] = {}
        unnamed: str | None = None
        others = OtherClients(source, self._tz_offset)
        for line in _texts(wrappers, numbered(others.lines())):
            if line.program not in programs:
                programs[line.program] = _Program(source, f"{source.name} {line.program}".strip())
            program = programs[line.program]
            program.take(line.stamp)
            if line.key:
                if line.block is not None:
                    self._end_block(program, source)
                    program.configs.begin(line.block)
                program.configs.add(line.key, line.value)
            elif line.block is not None:
                self._unread(line.block, program, source)
            else:
                self._end_block(program, source)
                event = lines.event_of(line.text)
                if event is not None and event.kind == "refused":
                    unnamed = unnamed if unnamed or program.rejected else event.group_id
                elif event is not None:
                    self._take(event, program, line)
        for program in programs.values():
            self._end_block(program, source)
            self.logs.append(program.read())
        self._programs += programs.values()
        seen, logs, notes = others.read()
        self.others += seen
        self.logs += logs
        self.notes |= dict.fromkeys(notes)
        if unnamed is not None and not any(p.rejected for p in programs.values()):
            of = f"of group {unnamed!r}" if unnamed else "whose group is not printed"
            self.notes.setdefault(
                f"{source.name}: a client {of} was rejected (InconsistentGroupProtocolException); "
                "the log of org.apache.kafka.clients shows which."
            )

    def end(self) -> None:
        """Add the observations that need all logs to `found`; call it after the last source."""
        self._member_lists.bind()
        for program in self._programs:
            program.clients.resolve()
        self.found += filter(None, (each() if callable(each) else each for each in self._pending))

    def named(self, observation: Observation) -> Observation:
        """Return the observation with assignor names in place of assignor classes.

        Call it after all logs were read. A list that contains a class without a known name becomes
        empty; its `classes` stay.
        """
        if not isinstance(observation, Joined | Refused):
            return observation
        names = self._classes.names(observation.list)
        if names is not None:
            return replace(observation, list=names)
        own = " and ".join(each for each in observation.list if self._classes.names([each]) is None)
        self.notes.setdefault(
            f"client id {observation.client_id!r} of group {observation.group_id!r} has {own} in "
            "its list, and "
            "no log given here shows that assignor's name: --request-log does, or the log of a "
            "start at which it was elected."
        )
        return replace(observation, list=())

    def _end_block(self, program: _Program, source: TextInput) -> None:
        block, config = program.configs.block, program.configs.end()
        if block is not None and program.configs.spoiled:
            self._unread(block, program, source)
        if config is not None:
            program.clients.add(
                ClientLine(
                    kind="config",
                    group_id=config.group_id,
                    client_id=config.client_id,
                    instance_id=config.instance_id,
                    worker=config.worker,
                    config=config,
                )
            )

    def _unread(self, block: Block, program: _Program, source: TextInput) -> None:
        if block.of not in NEEDED:
            return
        program.clients.add(ClientLine("spoiled"))
        self._unread_of.setdefault(source.name, block.number)
        after = f" after {block.start!r}" if block.start else ""
        self.notes.setdefault(
            f"{source.name}:{block.number}: the settings of `{block.of}Config values:`{after} "
            "could not be read: they are mixed with other lines, or cut off."
        )

    def _take(self, event: ClientLine, program: _Program, line: LogText) -> None:
        evidence, where = program.place(line)
        at, clients = evidence.at, program.clients
        client = (event.group_id, event.client_id)
        number = -1
        match event.kind:
            case "version":
                clients.add_version(event.value)
            case "started":
                if at is not None and where["local"]:
                    program.anchors.append(
                        (at, datetime.fromtimestamp(int(event.value) / 1000, UTC))
                    )
            case "built":
                program.built.setdefault(event.client_id, []).append((event, evidence))
                program.builds[event.client_id] += 1
            case "cluster":
                program.cluster_ids[event.cluster_id] = None
            case "joined":
                number = clients.add(event)
                program.assignors[client] = event.assignor
                if not event.worker:
                    self._ran(event, program, evidence, where)
                self._pending.append(partial(self._join, number, program, evidence, where))
            case "rejected":
                program.rejected = True
                # A fenced client was a member: its member id keeps its configuration.
                own = -1 if event.error == "FENCED_INSTANCE_ID" else clients.add(event)
                self._pending.append(partial(_rejection, event, program, evidence, own, where))
            case "failing":
                program.failing[client] = event
            case "fatal":
                cause = program.failing.get(client, event).reason or "UNKNOWN_SERVER_ERROR"
                event = event._replace(error=cause.upper().replace(" ", "_"))
                self._pending.append(partial(_rejection, event, program, evidence, -1, where))
            case "left":
                # Connect's own log layout prints the logger's name after it.
                closing = (event.reason or "").startswith("the consumer is being closed")
                clients.add(event if closing else event._replace(kind="lost"))
                self._pending.append(
                    Left(
                        **where,
                        group_id=event.group_id,
                        member_id=event.member_id,
                        at=at,
                        instance_id=event.instance_id,
                        reason=event.reason,
                        evidence=evidence,
                    )
                )
            case "leader":
                if at is not None and event.generation_id is not None:
                    self._pending.append(
                        Rebalanced(
                            **where,
                            group_id=event.group_id,
                            generation_id=event.generation_id,
                            at=at,
                            assignor=program.assignors.get(client),
                            evidence=evidence,
                        )
                    )
            case _:
                clients.add(event)
        self._member_lists.take(number, event, clients, line.number, line.stamp)

    def _join(
        self, number: int, program: _Program, evidence: Evidence, where: Where
    ) -> Joined | None:
        event = program.clients.events[number]
        source = evidence.detail.rpartition(":")[0]
        found = program.clients.of_member(event.group_id, event.member_id, event.client_id)
        match found:
            case _ if event.value:
                # KIP-848: the list of the configuration is not sent.
                return Joined(
                    **where,
                    group_id=event.group_id,
                    member_id=event.member_id,
                    new=True,
                    at=evidence.at,
                    client_id=event.client_id,
                    instance_id=event.instance_id,
                    # A member of another protocol (KIP-1071) may print such a line, too.
                    software=_software(found.version, evidence)
                    if isinstance(found, Config) and found.group_protocol == "consumer"
                    else None,
                    evidence=evidence,
                )
            case Lookup() if any(
                isinstance(one, Joined) and one.list and one.member_id == event.member_id
                for one in self.others
            ):
                # At DEBUG the join itself shows the list.
                return None
            case Lookup.NONE:
                unread = self._unread_of.get(source)
                problem = (
                    ", but no `ConsumerConfig values:` stands before it; give the log from the "
                    "start of the process, with org.apache.kafka.clients and "
                    "org.apache.kafka.common.config at level INFO (Quarkus sets them to WARN)."
                    if unread is None
                    else f", and the configuration in line {unread}, which may be its own, could "
                    "not be read."
                )
            case Lookup.AMBIGUOUS:
                problem = (
                    ", but the log does not tell several clients of that name apart; give one log "
                    "per process from its start (or `kubectl logs` with --prefix)."
                )
            case Config() if not is_nameless(event):
                self._classes.learn(found.classes, event.assignor)
                return Joined(
                    **where,
                    group_id=event.group_id,
                    member_id=event.member_id,
                    list=found.classes,
                    new=True,
                    classes=own_classes(found.classes),
                    built_at=found.printed_at,
                    at=evidence.at,
                    client_id=event.client_id,
                    instance_id=event.instance_id or found.instance_id,
                    software=_software(found.version, evidence),
                    generation_id=event.generation_id,
                    session_timeout_ms=found.session_timeout_ms,
                    rebalance_timeout_ms=found.rebalance_timeout_ms,
                    held_back_ms=found.held_back_ms,
                    protocol_type="connect" if event.worker else "consumer",
                    evidence=evidence,
                )
            case Config() if len(program.clients.joined(event.group_id, event.client_id)) > 1:
                # Another join of this client has a member id.
                return None
            case Config():
                names = ", ".join(assignor_of(each) or each for each in found.classes)
                problem = (
                    f" with [{names}] but printed no member id (clients before 2.6.1 do not). The "
                    "group leader's log may name it (`Finished assignment for group`), or a "
                    "request log."
                )
        self.notes.setdefault(
            f"{source}: client id {event.client_id!r} of group {event.group_id!r} joined{problem}"
        )
        return None

    def _ran(self, event: ClientLine, program: _Program, evidence: Evidence, where: Where) -> None:
        """Record the rebalance protocol (EAGER or COOPERATIVE) of a Streams member's first join.

        The member is taken for the consumer that was built last with its client id, and the line
        about that build shows the protocol. Some programs print no such line, and none since 4.0:
        then the version and the configuration of the Streams program determine it.
        """
        key = (event.group_id, event.member_id)
        if event.member_id and key not in program.ran:
            program.ran.add(key)
            built = program.built.pop(event.client_id, [])
            self._pending.append(
                partial(self._ran_as_built, event, program, evidence, built, where)
            )

    def _ran_as_built(
        self,
        event: ClientLine,
        program: _Program,
        evidence: Evidence,
        built: Sequence[tuple[ClientLine, Evidence]],
        where: Where,
    ) -> Ran | None:
        # Two consumers that were built before either joined may be confused if they differ.
        if any(one.value != built[-1][0].value for one, _ in built):
            return None
        found = program.clients.of_member(event.group_id, event.member_id, event.client_id)
        if found is Lookup.AMBIGUOUS or (
            # Without a configuration, the lines of the assignor must account for all members.
            found is Lookup.NONE
            and len(program.clients.joined(event.group_id, event.client_id))
            > program.builds[event.client_id]
        ):
            return None
        setting, value = None, None
        if isinstance(found, Config) and found.upgrade_from is not None:
            setting = found.upgrade_from
            value = protocol_by_setting(_software(found.version, evidence), setting)
        if built:
            last, evidence = built[-1]
            by_setting, value = value, RebalanceProtocol(last.value.upper())
            setting = last.upgrade_from or (setting if by_setting is value else None)
        if value is None:
            return None
        shown = "Cooperative enabled" if setting is None else f"upgrade.from={setting or '(unset)'}"
        return Ran(
            **where,
            group_id=event.group_id,
            member_id=event.member_id,
            value=value,
            upgrade_from=setting,
            evidence=replace(evidence, detail=f"{evidence.detail} {shown}"),
        )


def _texts(wrappers: Wrappers, raws: Iterator[tuple[int, bytes]]) -> Iterator[LogText]:
    """Yield the settings and the lines that may be events from `raws`, pairs of number and line.

    A configuration block of which no setting could be read is yielded with an empty key.
    """
    for number, raw in raws:
        if wrappers.in_block or lines.WANTED.search(raw):
            yield from wrappers.texts(raw, number)
    yield from wrappers.unfinished()


def _rejection(
    event: ClientLine, program: _Program, evidence: Evidence, number: int, where: Where
) -> Refused:
    found = program.clients.rejections.get(number)
    config = found if isinstance(found, Config) else None
    return Refused(
        **where,
        error=event.error,
        group_id=event.group_id,
        list=config.classes if config else (),
        at=evidence.at,
        client_id=event.client_id,
        instance_id=event.instance_id or (config.instance_id if config else None),
        software=_software(config.version if config else None, evidence),
        evidence=evidence,
    )


def _software(version: str | None, evidence: Evidence) -> Software:
    return Software(
        family=family_of(_JAVA, version), name=_JAVA, version=version, evidence=(evidence,)
    )
