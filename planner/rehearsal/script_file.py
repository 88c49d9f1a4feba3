"""Scripts for rehearsals that are written by hand in YAML or JSON (`rebal.script/1`).

docs/rehearsal.md documents the format. `load_script` parses the text, `script_of` makes it the
script of one group. Each error names the file, the position in it and the line.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec.structs import fields, replace

from rebal.groups.assignors import NAMES
from rebal.groups.clients import assignor_of
from rebal.groups.durations import seconds_of
from rebal.groups.errors import DocumentError
from rebal.groups.model import Record
from rebal.groups.snapshot.documents import Format, line_of, loads
from rebal.planner.plan import Plan
from rebal.planner.rehearsal.engine.member import CALLBACKS, Process
from rebal.planner.rehearsal.scene import METADATA_AGE, MOST_DAYS, PARAMETERS, value_of
from rebal.planner.rehearsal.scripts import Deed, Scene, Script, ScriptEvent, restarted, step_events

SCHEMA: Final = "rebal.script/1"
_MOST_PARTITIONS: Final = 1_000_000

Members = str | tuple[str, ...]
Duration = str | int | float


class ScriptItem(
    Record,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={
        "for_": "for",
        "delete_topic": "delete-topic",
        "enforce_rebalance": "enforce-rebalance",
        "fails_in": "fails-in",
    },
):
    """One item of a script file: exactly one event, with its time and options.

    Members are a name, a pattern such as `worker-*`, `all`, or a list of these. `at` is the time
    since the start, `after` the time since the event before. Without either, the event happens once
    the group is at rest.
    """

    at: Duration | None = None
    after: Duration | None = None
    phase: str = ""
    restart: Members | None = None
    stop: Members | None = None
    start: Members | None = None
    kill: Members | None = None
    busy: Members | None = None
    freeze: Members | None = None
    enforce_rebalance: Members | None = None
    commit: Members | None = None
    subscribe: Members | None = None
    coordinator: str | None = None
    partitions: Mapping[str, int] | None = None
    delete_topic: str | None = None
    wait: Duration | None = None
    step: int | None = None
    assignors: Members | None = None
    protocol: str | None = None
    takes: Duration | None = None
    fails_in: Members | None = None
    batch: int | None = None
    for_: Duration | None = None
    like: str | None = None
    topics: Members | None = None
    noticed: Duration | None = None


class ScriptFile(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a script file.

    `set` has values of rehearsal parameters by name. `rests` is the longest wait for the group to
    come to rest.
    """

    schema: str = SCHEMA
    about: str = ""
    set: Mapping[str, Duration] = {}
    rests: Duration | None = None
    events: tuple[ScriptItem, ...]


class ScriptError(DocumentError):
    """Error for a script that is not valid.

    If the script uses an unknown name, `word` is that name and `known` has the names that are
    allowed.
    """

    def __init__(self, message: str, word: str = "", known: Collection[str] = ()) -> None:
        super().__init__(message)
        self.word, self.known = word, tuple(known)


class ScriptText(Record, frozen=True, kw_only=True):
    """A parsed script file, with its text and name for error messages."""

    name: str
    text: str
    file: ScriptFile

    def error(
        self, path: str, why: str, word: str = "", known: Collection[str] = ()
    ) -> ScriptError:
        """Return the error at the position `path`, such as `events[2].kill`, with its line."""
        line = line_of(self.text, re.findall(r"[^.\[\]]+", path))
        where = f" (line {line})" if line else ""
        return ScriptError(f"{self.name}: {path}: {why}{where}.", word, known)

    def parameters(self) -> dict[str, float]:
        """Return the rehearsal parameters that the script sets, by name: seconds, or a share.

        Raises:
            ScriptError: a parameter does not exist, or its value is not valid.
        """
        made = {}
        for name, value in self.file.set.items():
            if name not in PARAMETERS:
                raise self.error(
                    f"set.{name}",
                    f"there is no parameter {name[:40]}; there are {', '.join(PARAMETERS)}",
                    name,
                    PARAMETERS,
                )
            try:
                made[name] = value_of(name, value)
            except ValueError as error:
                raise self.error(f"set.{name}", str(error)) from None
        return made


def load_script(text: str, form: Format, name: str) -> ScriptText:
    """Parse the script in `text`; `name` is its file's name for error messages.

    Raises:
        DocumentError: it is not YAML or JSON, is not a script, has a wrong field, or has no event.
    """
    # The envelope's schema is checked before its fields are.
    try:
        file = loads(text, form, name, SCHEMA, ScriptFile, by_hand=True)
    except DocumentError as error:
        found = re.search(r"unknown field `([^`]*)`", str(error))
        if found is None:
            raise
        kind = ScriptItem if "events[" in str(error) else ScriptFile
        known = [field.encode_name for field in fields(kind)]
        said = str(error).replace(f"object contains {found[0]}", f"there is no key {found[1]}")
        raise ScriptError(said, found[1], known) from None
    made = ScriptText(name=name, text=text, file=file)
    if not file.events:
        raise made.error("events", "the script has no event")
    return made


def script_of(
    source: ScriptText,
    scene: Scene,
    *,
    plan: Plan | None = None,
    batch: int = 1,
    metadata: float = METADATA_AGE,
    assignors: Collection[str] = (),
) -> Script:
    """Return the script of `source` for the group of `scene`, with its members and steps resolved.

    `plan` has the steps that the script names; `batch` is how many processes of a step restart at a
    time. `metadata` is the time in seconds until leaders notice changed topics. `assignors` are
    names of custom assignors.

    Raises:
        ScriptError: an event is not valid, or names a member, topic or step that does not exist.
    """
    reading = _Reading(
        source, scene, plan=plan, batch=batch, metadata=metadata, assignors=assignors
    )
    for place, item in enumerate(source.file.events):
        reading.take(place, item)
    script = Script(about=source.file.about, events=tuple(reading.events))
    rests = source.file.rests
    return script if rests is None else replace(script, rests=reading.seconds("rests", rests))


class _Reading:
    def __init__(
        self,
        source: ScriptText,
        scene: Scene,
        *,
        plan: Plan | None,
        batch: int,
        metadata: float,
        assignors: Collection[str],
    ) -> None:
        self._error, self._plan = source.error, plan
        self._batch, self._metadata = batch, metadata
        self._processes = {one.process.name: one.process for one in scene.running}
        self._topics = dict(scene.topics)
        lists = (one.process.assignors for one in scene.running)
        self._assignors = {*NAMES, *assignors, *(name for list_ in lists for name in list_)}
        self._last = 0.0
        self.events: list[ScriptEvent] = []

    def take(self, place: int, item: ScriptItem) -> None:
        """Convert the item with index `place` to events, and append them to `events`.

        Raises:
            ScriptError: the item is not valid, or names something that does not exist.
        """
        here = f"events[{place}]"
        deed = self._deed(here, item)
        if item.batch is not None and item.batch < 0:
            raise self._error(f"{here}.batch", "expected a number of members, or 0 for all")
        events = self._events(f"{here}.{deed}", deed, item, here)
        if not events:
            raise self._error(f"{here}.{deed}", "names nothing that changes")
        phase = item.phase or events[0].phase
        self.events += [replace(events[0], phase=phase, **self._time(here, item)), *events[1:]]

    def seconds(self, path: str, text: Duration) -> float:
        """Return the duration `text` in seconds; an error names its position `path`."""
        try:
            return seconds_of(text, days=MOST_DAYS)
        except ValueError as error:
            raise self._error(path, str(error)) from None

    def _deed(self, here: str, item: ScriptItem) -> str:
        given = [f.encode_name for f in fields(ScriptItem) if getattr(item, f.name) is not None]
        found = [key for key in given if key in EVENTS]
        if not found:
            raise self._error(here, f"nothing happens here: add one of {', '.join(EVENTS)}")
        if len(found) > 1:
            raise self._error(
                here, f"{' and '.join(found)} are {len(found)} events: write an item for each"
            )
        for key in given:
            if key not in (*found, "at", "after", "phase", *EVENTS[found[0]]):
                owners = ", ".join(name for name, keys in EVENTS.items() if key in keys)
                raise self._error(
                    f"{here}.{key}", f"{found[0]} has no `{key}`; it belongs to {owners}"
                )
        return found[0]

    def _time(self, here: str, item: ScriptItem) -> dict[str, float]:
        if item.at is not None and item.after is not None:
            raise self._error(f"{here}.after", "at and after exclude each other")
        if item.after is not None:
            return {"after": self.seconds(f"{here}.after", item.after)}
        if item.at is None:
            return {}
        at = self.seconds(f"{here}.at", item.at)
        if at < self._last:
            raise self._error(
                f"{here}.at",
                f"{at:g} s is earlier than {self._last:g} s, which an event above has",
            )
        self._last = at
        return {"at": at}

    def _events(self, path: str, deed: str, item: ScriptItem, here: str) -> Sequence[ScriptEvent]:
        if deed in ("restart", "start"):
            return self._starts(path, deed, item, here)
        if deed == "step":
            return self._step(path, item)
        if deed == "wait":
            return [ScriptEvent(do=Deed.WAIT, seconds=self.seconds(path, item.wait or 0))]
        if deed == "coordinator":
            if item.coordinator != "moves":
                raise self._error(path, "the one thing that it does is: moves")
            takes = 1.0 if item.takes is None else self.seconds(f"{here}.takes", item.takes)
            return [ScriptEvent(do=Deed.COORDINATOR, seconds=takes)]
        if deed in ("partitions", "delete-topic"):
            return self._changed_topics(path, deed, item, here)
        found = self._members(path, getattr(item, deed.replace("-", "_")))
        event = ScriptEvent(do=Deed(deed), members=found)
        if deed in ("busy", "freeze"):
            if item.for_ is None:
                raise self._error(here, f"{deed} needs `for`, such as `for: 2m`")
            return [replace(event, seconds=self.seconds(f"{here}.for", item.for_))]
        if deed == "subscribe":
            if not item.topics:
                raise self._error(here, "subscribe needs `topics`")
            return [replace(event, topics=self._known_topics(f"{here}.topics", item.topics))]
        return [event]

    def _starts(self, path: str, deed: str, item: ScriptItem, here: str) -> Sequence[ScriptEvent]:
        takes = None if item.takes is None else self.seconds(f"{here}.takes", item.takes)
        assignors = self._lists(f"{here}.assignors", item.assignors)
        if item.protocol not in (None, "classic", "consumer"):
            raise self._error(f"{here}.protocol", "expected classic or consumer")
        if item.like is not None:
            return [self._new(path, item, here, takes, assignors)]
        found = self._members(path, getattr(item, deed))
        fails_in = self._fails_in(f"{here}.fails-in", item.fails_in, found)
        size = item.batch or len(found)
        return [
            ScriptEvent(
                do=Deed.RESTART,
                members=found[first : first + size],
                assignors=assignors,
                protocol=item.protocol or "",
                fails_in=fails_in,
                seconds=takes if deed == "restart" else takes or 0.0,
            )
            for first in range(0, len(found), size)
        ]

    def _new(
        self,
        path: str,
        item: ScriptItem,
        here: str,
        takes: float | None,
        assignors: tuple[str, ...],
    ) -> ScriptEvent:
        """Return the event that starts new members, with the settings of the member `item.like`.

        `assignors`, if not empty, replaces their list. They join `takes` seconds later (None: at
        once). Errors name `path`, the position of the new names, or a position under `here`.
        """
        old = self._processes[self._members(f"{here}.like", item.like or "")[0]]
        fails_in = self._fails_in(f"{here}.fails-in", item.fails_in, [old.name])
        new: list[Process] = []
        if not item.start:
            raise self._error(path, "names no member")
        for name in _listed(item.start):
            if name in self._processes:
                raise self._error(path, f"{name} is in the group already: leave out `like`")
            self._processes[name] = replace(
                old,
                name=name,
                client_id=name,
                instance_id=name if old.instance_id else None,
                assignors=assignors or old.assignors,
                protocol=item.protocol or old.protocol,
                fails_in=old.fails_in if fails_in is None else fails_in,
            )
            new.append(self._processes[name])
        return ScriptEvent(do=Deed.START, processes=tuple(new), seconds=takes or 0.0)

    def _fails_in(
        self, path: str, given: Members | None, members: Collection[str]
    ) -> tuple[str, ...] | None:
        """Return the listener callbacks that throw; None if the item does not set `fails-in`."""
        if given is None:
            return None
        found = self._known(path, given, CALLBACKS, f"expected {', '.join(CALLBACKS)}")
        for name in members:
            if self._processes[name].family != "java":
                raise self._error(
                    path, f"only what Java consumers do then is modelled, and {name[:60]} is none"
                )
        return found

    def _step(self, path: str, item: ScriptItem) -> Sequence[ScriptEvent]:
        plan = self._plan
        if plan is None:
            raise self._error(path, "a step needs its plan: name the PLAN too")
        step = plan.step(item.step)
        if step is None:
            raise self._error(path, f"the plan has no step {item.step}; it has {len(plan.steps)}")
        known = (
            tuple(name for name in threads if name in self._processes)
            for threads in restarted(plan, step)
        )
        size = self._batch if item.batch is None else item.batch
        return step_events(step, [*filter(None, known)], batch=size)

    def _changed_topics(
        self, path: str, deed: str, item: ScriptItem, here: str
    ) -> Sequence[ScriptEvent]:
        late = item.noticed
        noticed = self._metadata if late is None else self.seconds(f"{here}.noticed", late)
        if deed == "delete-topic":
            (topic,) = self._known_topics(path, item.delete_topic or "")
            del self._topics[topic]
            return [ScriptEvent(do=Deed.DELETE_TOPIC, topic=topic, seconds=noticed)]
        made: list[ScriptEvent] = []
        for topic, count in (item.partitions or {}).items():
            here = f"{path}.{topic}"
            now = self._topics[self._known_topics(here, topic)[0]]
            if count <= now:
                raise self._error(
                    here, f"{topic} has {now} partitions already, and Kafka only adds some"
                )
            if count > _MOST_PARTITIONS:
                raise self._error(here, f"expected at most {_MOST_PARTITIONS:,} partitions")
            self._topics[topic] = count
            made.append(
                ScriptEvent(
                    do=Deed.PARTITIONS,
                    topic=topic,
                    count=count,
                    seconds=noticed,
                    after=0.0 if made else None,
                )
            )
        return made

    def _known(
        self, path: str, names: Members, known: Collection[str], why: str
    ) -> tuple[str, ...]:
        """Return `names` as a tuple if all of them are in `known`; otherwise raise the error `why`.

        `{}` in `why` stands for the unknown name.
        """
        for name in _listed(names):
            if name not in known:
                raise self._error(path, why.format(name[:60]), name, known)
        return _listed(names)

    def _known_topics(self, path: str, given: Members) -> tuple[str, ...]:
        return self._known(path, given, self._topics, "the group reads no topic {}")

    def _lists(self, path: str, given: Members | None) -> tuple[str, ...]:
        named = _listed(given or ())
        found = [one if one in self._assignors else assignor_of(one) or one for one in named]
        return self._known(path, tuple(found), self._assignors, "there is no assignor {}")

    def _members(self, path: str, given: Members) -> tuple[str, ...]:
        """Return the members that the names and patterns in `given` match, each once.

        They are in the order of `given`; the matches of one pattern are in the group's order.
        """
        found: dict[str, None] = {}
        for name in _listed(given):
            met = [one for one in self._processes if name in (one, "all")]
            met = met or [one for one in self._processes if fnmatchcase(one, name)]
            if not met:
                called = "matches" if {*name}.intersection("*?[") else "is called"
                raise self._error(path, f"no member {called} {name[:60]}", name, self._processes)
            found.update(dict.fromkeys(met))
        if not found:
            raise self._error(path, "names no member")
        return tuple(found)


def _listed(given: Members) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


_JOINS: Final = ("assignors", "protocol", "takes", "fails-in")
EVENTS: Final[Mapping[str, Sequence[str]]] = {
    "restart": (*_JOINS, "batch"),
    "stop": (),
    "start": (*_JOINS, "like", "batch"),
    "kill": (),
    "busy": ("for",),
    "freeze": ("for",),
    "enforce-rebalance": (),
    "commit": (),
    "subscribe": ("topics",),
    "coordinator": ("takes",),
    "partitions": ("noticed",),
    "delete-topic": ("noticed",),
    "wait": (),
    "step": ("batch",),
}
"""Event of a script → further keys that it accepts."""
