"""A script: a group, and what happens to it, by time; the input of a rehearsal."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from rebal.groups.model import Record
from rebal.planner.rehearsal.engine.memory import Brokers
from rebal.planner.rehearsal.engine.process import Process, RunningProcess


class Deed(StrEnum):
    """Kinds of events.

    restart, stop, start, kill (the process ends without LeaveGroup), busy (no poll for `seconds`),
    freeze (no heartbeat either), coordinator (another broker loads the group), partitions (a topic
    has `count`), delete-topic, delete-group (an administrator deletes an Empty one), subscribe (to
    `topics`), enforce-rebalance (KIP-568), commit, wait.
    """

    RESTART = "restart"
    STOP = "stop"
    START = "start"
    KILL = "kill"
    BUSY = "busy"
    FREEZE = "freeze"
    COORDINATOR = "coordinator"
    PARTITIONS = "partitions"
    DELETE_TOPIC = "delete-topic"
    DELETE_GROUP = "delete-group"
    SUBSCRIBE = "subscribe"
    ENFORCE_REBALANCE = "enforce-rebalance"
    COMMIT = "commit"
    WAIT = "wait"


class ScriptEvent(Record, frozen=True, kw_only=True):
    """One thing that happens, to all of `members` at once.

    It happens at `at` seconds, or `after` seconds after the event before, or (both None) when the
    group is at rest after the event before. `seconds` is how long it takes (a restart: until the
    process joins; None: the scene's usual). A restart may set `assignors`, `family`, `protocol`
    (group.protocol) and `remote_assignor` (group.remote.assignor) anew, and the callbacks that its
    process `fails_in` (None: as before); a start gives `processes`.
    `phase` names the part of the story that begins here, such as a plan's step: results are given
    for each.
    """

    do: Deed
    at: float | None = None
    after: float | None = None
    members: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    seconds: float | None = None
    assignors: tuple[str, ...] = ()
    protocol: str = ""
    remote_assignor: str = ""
    family: str = ""
    fails_in: tuple[str, ...] | None = None
    topic: str = ""
    topics: tuple[str, ...] = ()
    count: int = 0
    phase: str = ""


class Scene(Record, frozen=True, kw_only=True):
    """The group when the story begins; times in seconds.

    `topics` has partition counts; a group of Connect workers has `connectors`, each with its number
    of tasks. `replicas` and `racks` are as an assignor's `Spec`, `topic_ids` as Kafka prints them.
    `user_data` names the assignors whose assignments carry user data: KIP-848 has no field for it.
    `running` are in a Stable group that elected `assignor` in `generation`; without any the group
    is Empty. If one of them speaks KIP-848, the group is a KIP-848 group and `generation` its
    epoch. `restart` is from the stop of a process until it joins again, drawn evenly from `spread`
    (a share of it) less to `spread` more.
    """

    topics: Mapping[str, int]
    connectors: Mapping[str, int] = {}
    replicas: Mapping[str, Sequence[Sequence[int]]] = {}
    racks: Mapping[int, str | None] = {}
    topic_ids: Mapping[str, str] = {}
    user_data: tuple[str, ...] = ()
    brokers: Brokers = Brokers()
    running: tuple[RunningProcess, ...] = ()
    assignor: str = ""
    leader: str | None = None
    generation: int = 0
    restart: float = 30.0
    spread: float = 0.0


class Script(Record, frozen=True, kw_only=True):
    """Events in order; `about` is one sentence, `rests` the longest wait for rest."""

    about: str = ""
    events: tuple[ScriptEvent, ...] = ()
    rests: float = 3600.0
