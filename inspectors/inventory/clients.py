"""The consumers that the settings of one process declare, with keys in any prefix and spelling.

A key is split into a scope and Kafka's own key. `spring.kafka.consumer.group-id`,
`SPRING_KAFKA_CONSUMER_GROUPID`, `spring.kafka.consumer.properties.group.id` and `kafka.groupId` all
set `group.id` in their scope. The settings of one scope are one consumer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from msgspec.structs import replace

from rebal.groups.clients import assignor_of, worker_list
from rebal.groups.evidence.observations import Declared
from rebal.groups.model import Evidence, Source
from rebal.inspectors.inventory.documents import (
    ConfigDocument,
    Environment,
    Flat,
    key_words,
    span_ms,
)

# Besides the list, clients with group.protocol=consumer reject these settings (KIP-848).
_CLASSIC_ONLY: Final = ("heartbeat.interval.ms", "session.timeout.ms")
# Names that frameworks give the same settings; their values have a unit (Spring, Go).
_SPANS: Final = {_CLASSIC_ONLY[1]: "session timeout", "max.poll.interval.ms": "poll interval"}
# Settings by the letters of a key's last words.
_KEYS: Final = {
    "partitionassignmentstrategy": "partition.assignment.strategy",
    "partitionassignmentstrategies": "partition.assignment.strategy",
    # The OpenTelemetry Collector's Kafka receiver.
    "grouprebalancestrategies": "partition.assignment.strategy",
    "grouprebalancestrategy": "partition.assignment.strategy",
    "groupinstanceid": "group.instance.id",
    "bootstrapservers": "bootstrap.servers",
    "metadatabrokerlist": "bootstrap.servers",
    "binderbrokers": "bootstrap.servers",
    "applicationid": "application.id",
    "consumergroupid": "group.id",
    "consumergroup": "group.id",
    "groupprotocol": "group.protocol",
    "heartbeatintervalms": _CLASSIC_ONLY[0],
    "heartbeatinterval": _CLASSIC_ONLY[0],
    "sessiontimeoutms": _CLASSIC_ONLY[1],
    "maxpollintervalms": "max.poll.interval.ms",
    "sessiontimeout": _SPANS[_CLASSIC_ONLY[1]],
    "maxpollinterval": _SPANS["max.poll.interval.ms"],
    "clientid": "client.id",
    "groupid": "group.id",
    "upgradefrom": "upgrade.from",
}
_LONGEST_KEY: Final = 4
# Words at the end of a prefix that do not separate consumers.
_NEUTRAL_ENDS: Final = (
    "properties",
    "props",
    "config",
    "configs",
    "configuration",
    "settings",
    "consumer",
    "consumers",
    # Vector, Fluent Bit.
    "librdkafka",
    "rdkafka",
    "options",
)
_NEAR: Final = frozenset({"kafka", "consumer", "streams", "incoming"})
# Spring Cloud Stream: settings of its binder are those of its bindings too.
_STREAM: Final = ("spring", "cloud", "stream")
# A setting that only Connect workers have, and what is before those of this worker.
_CONNECT_WORKER: Final = re.compile(
    r"(?:(.*)\.)?(?:connect[._])?(?:(?:config|offset)[._]storage[._]topic|connect[._]protocol)",
    re.IGNORECASE,
)
_WORKER_KEYS: Final = {
    "groupid": "group.id",
    "clientid": "client.id",
    "connectprotocol": "connect.protocol",
    "sessiontimeoutms": _CLASSIC_ONLY[1],
    "heartbeatintervalms": _CLASSIC_ONLY[0],
    "rebalancetimeoutms": "rebalance.timeout.ms",
    "scheduledrebalancemaxdelayms": "scheduled.rebalance.max.delay.ms",
}
_OF_SINKS: Final = "consumer.override."
_LIBRDKAFKA_ONLY: Final = (
    "enable.auto.offset.store",
    "enable.partition.eof",
    "metadata.broker.list",
    "queued.min.messages",
    "socket.keepalive.enable",
    "statistics.interval.ms",
    "topic.metadata.refresh.interval.ms",
)
_Path: TypeAlias = tuple[str, ...]
Dates: TypeAlias = tuple[datetime | None, datetime | None]
# A document with its place and dates.
Part: TypeAlias = tuple[str, Dates, ConfigDocument]
# Settings by the words before their own; None: set, to a value that is not known.
_Scopes: TypeAlias = dict[_Path, dict[str, str | None]]
# The end of a note on a consumer that is read whole.
OF_A_PROFILE: Final = " is valid only while that profile is active, which the files do not show."


class Place:
    """A file or a container that declares consumers; `where` is its name in notes.

    `dates` has one pair for each file or Kubernetes object that it is read from: the last change of
    its text (None: not known), and the creation of the object (None: a file, or not known).
    """

    def __init__(self, where: str, notes: list[str], *dates: Dates) -> None:
        self.where = where
        self.dates = list(dates)
        self._notes = notes

    def note(self, clause: str) -> None:
        """Add a note: a sentence with this place as subject, and `clause` as the rest."""
        self._notes.append(f"{self.where} {clause}.")

    @property
    def evidence(self) -> Evidence:
        """Return the evidence for the consumers that this place declares.

        Its time `at` is that of the newest change of the place's texts; None if the time of any
        text's change is not known.
        """
        written = [changed for changed, _ in self.dates]
        return Evidence(
            source=Source.CONFIG_FILE,
            detail=self.where,
            at=None if None in written else max(filter(None, written)),
        )

    @property
    def created_at(self) -> datetime | None:
        """Return when the newest of the place's objects was created; None if not known."""
        return max(filter(None, (created for _, created in self.dates)), default=None)


def consumers_of(process: Sequence[Part], notes: list[str]) -> Iterator[Declared]:
    """Yield the consumers that the configuration files of one process declare.

    The files are read without a profile, then once with each profile that they contain. A consumer
    of a profile is yielded only if it differs from all those without a profile; a sentence about it
    is added to `notes`.
    """
    known: set[object] = set()
    base_first = sorted(process, key=lambda part: part[2].profile is not None)
    for profile in dict.fromkeys(document.profile for _, _, document in base_first):
        parts = [part for part in base_first if part[2].profile in (None, profile)]
        where = parts[-1][0] + (f" (profile {profile})" if profile else "")
        clients = clients_in(
            [one.settings for _, _, one in parts],
            Environment(),
            Place(where, notes, *(dates for _, dates, _ in parts)),
        )
        found = [one for one in clients if _identity(one) not in known]
        if profile is None:
            known.update(map(_identity, found))
        else:
            notes += (f"{one.where}{OF_A_PROFILE}" for one in found)
        yield from (replace(one, profile=profile) for one in found)


def _identity(one: Declared) -> Declared:
    return replace(one, where="", evidence=Evidence(source=Source.CONFIG_FILE), created_at=None)


def clients_in(layers: Sequence[Flat], environment: Environment, place: Place) -> list[Declared]:
    """Return the consumers and Connect workers that the settings in `layers` declare.

    A later layer overrides an earlier one. `environment` resolves placeholders; `place` gets the
    notes.
    """
    together = {key: value for layer in layers for key, value in layer.items()}
    workers = {
        f"{m[1]}." if m[1] else "" for key in together if (m := _CONNECT_WORKER.fullmatch(key))
    }
    found = [
        worker
        for prefix in sorted(workers)
        for worker in _worker(prefix, together, environment, place)
    ]
    layers = [
        {key: value for key, value in layer.items() if not key.startswith(tuple(workers))}
        for layer in layers
    ]
    if any(key.endswith("connector.class") for key in together):
        layers = [_of_sink(together)]
    split = [key_words(key) for layer in layers for key in layer]
    # Kafka Streams has other consumers too, which join no group.
    streams = any("".join(each).endswith("applicationid") for each in split)
    settings = [
        (rank, *setting, value)
        for rank, layer in enumerate(layers)
        for key, value in _with_lists(layer).items()
        for setting in _setting(key, (*_NEUTRAL_ENDS, "main") if streams else _NEUTRAL_ENDS)
    ]
    # Bindings of Spring Cloud Stream may be of another kind of broker.
    of_kafka = any(each[:3] == _STREAM and "kafka" in each for each in split)
    scopes: _Scopes = {("kafka",): {}} if of_kafka else {}
    # Within a layer the longer prefix is more specific.
    for _, _, path, name, value in sorted(settings, key=lambda each: each[:2]):
        scopes.setdefault(path, {})[name] = environment.resolve(value, together)
    found += [
        client
        for path in sorted(scopes)
        if _describes_a_consumer(path, scopes)
        for client in _client(path, scopes, together, place)
    ]
    return _merged(found)


def _worker(prefix: str, flat: Flat, environment: Environment, place: Place) -> Iterator[Declared]:
    """Yield the Connect worker whose keys begin with `prefix`.

    connect.protocol determines its assignor list. If it is unknown, the worker is left out with a
    note.
    """
    beside = {key.removeprefix(prefix): flat[key] for key in flat if key.startswith(prefix)}
    known: dict[str, str | None] = {}
    for key, raw in beside.items():
        # Images for containers write CONNECT_GROUP_ID and CONNECT_CONNECT_PROTOCOL.
        letters = "".join(key_words(key))
        name = _WORKER_KEYS.get(letters) or _WORKER_KEYS.get(letters.removeprefix("connect"))
        if name is not None:
            known[name] = environment.resolve(raw, beside)
    protocol = known.get("connect.protocol")
    offers = worker_list(protocol) if protocol is not None else None
    if "connect.protocol" in known and offers is None:
        place.note("has a Connect worker with an unknown connect.protocol, which is left out")
        return
    yield Declared(
        where=place.where,
        evidence=place.evidence,
        created_at=place.created_at,
        group_id=known.get("group.id"),
        client_id=known.get("client.id") or None,
        list=offers or (),
        family="connect",
        session_timeout_ms=number(known.get(_CLASSIC_ONLY[1])),
        heartbeat_ms=number(known.get(_CLASSIC_ONLY[0])),
        # The worker's counterpart of a consumer's max.poll.interval.ms.
        max_poll_interval_ms=number(known.get("rebalance.timeout.ms")),
        held_back_ms=number(known.get("scheduled.rebalance.max.delay.ms")),
    )


def _of_sink(connector: Flat) -> Flat:
    """Return the consumer settings of a sink connector's tasks, under the prefix `spring.kafka.`.

    `clients_in` takes consumers with that prefix for Java clients, as these are. For a source
    connector, which has no consumers, the result is empty.
    """
    flat = {key.removeprefix("config."): value for key, value in connector.items()}
    if not flat.keys() & {"topics", "topics.regex"}:
        return {}
    own = {key: value for key, value in flat.items() if key.startswith(_OF_SINKS)}
    # Connect takes the name from the request where the file has none.
    named = {f"{_OF_SINKS}group.id": f"connect-{flat.get('name', '${name}')}"} | own
    return {key.replace(_OF_SINKS, "spring.kafka."): value for key, value in named.items()}


def _with_lists(layer: Flat) -> Flat:
    """Return the layer with `key[0]`, `key[1]`, … joined to one comma-separated `key`."""
    flat: Flat = {}
    for key, value in layer.items():
        name = re.sub(r"\[\d+\]\Z", "", key)
        flat[name] = f"{flat[name]},{value}" if name != key and name in flat else value
    return flat


def _setting(key: str, ends: Sequence[str]) -> Iterator[tuple[int, _Path, str]]:
    """Yield (rank, scope, setting name) if `key` stands for a Kafka setting, else nothing.

    The scope is the words of the key before the setting's own. Words in `ends` are removed from
    its end, because keys that differ only in them are of one consumer. The rank is the number of
    words that the scope had before: in one layer, a higher rank overrides a lower one.
    """
    parts = key_words(key)
    for length in range(min(_LONGEST_KEY, len(parts)), 0, -1):
        own, path = parts[-length:], parts[:-length]
        name = _KEYS.get("".join(own))
        if path[:3] == _STREAM:
            if own == ("group",) and "bindings" in path:
                name = "group.id"
            path = tuple(word for word in path if word not in ("kafka", "binder", "bindings"))
        # Servlets, databases and spring.session have session timeouts too.
        if name is not None and (name not in _SPANS.values() or _NEAR & set(path)):
            specific = len(path)
            while path and path[-1] in ends:
                path = path[:-1]
            yield specific, path, name
            return


def _above(path: _Path) -> list[_Path]:
    """Return the scopes whose settings the scope `path` inherits, the nearest one last."""
    # SmallRye takes kafka.* for each channel.
    shared: list[_Path] = [("kafka",)] if path[:2] == ("mp", "messaging") else []
    return shared + [path[:length] for length in range(1, len(path))]


def _describes_a_consumer(path: _Path, scopes: _Scopes) -> bool:
    if {"producer", "admin", "template", "oauth", "oauthbearer", "oauth2"} & set(path):
        return False
    names = scopes[path].keys()
    if names & {"partition.assignment.strategy", "group.protocol", "group.instance.id"}:
        # spring.kafka.* may contain settings that several consumers below it share.
        return "group.id" in names or not any(
            path in _above(other) and "group.id" in scope for other, scope in scopes.items()
        )
    return not names.isdisjoint({"group.id", "application.id"}) and (
        (path[:3] == _STREAM and any("kafka" in each for each in scopes))
        or not _NEAR.isdisjoint(path)
        or any("bootstrap.servers" in scopes.get(path[:n], ()) for n in range(len(path) + 1))
    )


def _client(path: _Path, scopes: _Scopes, beside: Flat, place: Place) -> Iterator[Declared]:
    above = (scopes[each] for each in _above(path) if each in scopes)
    shared = [values for values in above if "group.id" not in values]
    known = {name: value for each in (*shared, scopes[path]) for name, value in each.items()}
    for name, value in known.items():
        # Times and servers decide no list and no group.
        if value is None and name not in (
            *(*_CLASSIC_ONLY, *_SPANS, *_SPANS.values()),
            "bootstrap.servers",
        ):
            place.note(f"sets {name} from a placeholder whose value is not known")
    if None in (
        known.get(each, "") for each in ("partition.assignment.strategy", "group.protocol")
    ):
        # An unknown list is not an unset one, which means the client's default.
        place.note("has a consumer whose next assignor list is not known, which is left out")
        return
    streams = "application.id" in known and "group.id" not in known
    text = None if streams else known.get("partition.assignment.strategy")
    names = (text or "").strip().removeprefix("[").removesuffix("]").split(",")
    # An empty text is one empty name.
    written = [name.strip().strip("'\"").strip() for name in names if text is not None]
    entries = [each for each in written if each]
    # A program hands what Kafka's own key has to the client.
    dotted = any(f".{key}".endswith(".partition.assignment.strategy") for key in beside)
    yield Declared(
        where=place.where,
        evidence=place.evidence,
        created_at=place.created_at,
        group_id=known.get("application.id" if streams else "group.id"),
        client_id=known.get("client.id"),
        instance_id=known.get("group.instance.id"),
        list=tuple(assignor_of(entry) or entry for entry in entries),
        spelled=tuple(written) if dotted else (),
        group_protocol=(known.get("group.protocol") or "").lower() or None,
        classic_only=tuple(name for name in _CLASSIC_ONLY if name in known),
        family="streams" if streams else _family(entries, "spring" in path, beside, dotted),
        session_timeout_ms=_milliseconds(known, _CLASSIC_ONLY[1]),
        heartbeat_ms=_milliseconds(known, _CLASSIC_ONLY[0]),
        max_poll_interval_ms=_milliseconds(known, "max.poll.interval.ms"),
        upgrade_from=known.get("upgrade.from") if streams else None,
        brokers=known.get("bootstrap.servers"),
    )


def _milliseconds(known: Mapping[str, str | None], name: str) -> int | None:
    """Return the timeout `name` in milliseconds; None if it is not set or cannot be read.

    Kafka's own key has a plain number; a framework's key for it has a time with a unit (45s).
    """
    own = number(known.get(name))
    return span_ms(known.get(_SPANS.get(name, name)) or "") if own is None else own


def number(value: str | None) -> int | None:
    """Return the integer that the text `value` shows; None if it is None or no integer."""
    return int(value) if value and re.fullmatch(r"-?[0-9]{1,10}", value) else None


def _family(entries: list[str], spring: bool, beside: Flat, dotted: bool) -> str | None:
    """Return the client family `java` or `librdkafka`; None if the settings do not show it.

    It is `java` if the keys are Spring's (`spring`) or the assignor list `entries` has class names
    of Kafka. It is `librdkafka` if a key in `beside` is librdkafka's alone, or if the list has only
    short names under Kafka's own key (`dotted`).
    """
    if spring or any(entry.startswith("org.apache.kafka.") for entry in entries):
        return "java"
    short = bool(entries) and all(assignor_of(entry) == entry for entry in entries)
    own_keys = any(
        key == name or key.endswith("." + name) for key in beside for name in _LIBRDKAFKA_ONLY
    )
    return "librdkafka" if own_keys or (short and dotted) else None


def _merged(found: list[Declared]) -> list[Declared]:
    merged: list[Declared] = []
    for client in found:
        for index, other in enumerate(merged):
            if union := _union(other, client):
                merged[index] = union
                break
        else:
            merged.append(client)
    return merged


# Settings in which the parts of one consumer's configuration agree, where they have them.
_SAME: Final = (
    *("group_id", "client_id", "instance_id"),
    *("group_protocol", "family", "upgrade_from"),
)


def _union(one: Declared, two: Declared) -> Declared | None:
    """Return one declaration with the settings of both, if they may be of the same consumer.

    None: one of them has no known group id, or they differ in an id, the assignor list, the group
    protocol, the client family or upgrade.from. A value that only one of them has is no difference.
    """
    said = [{getattr(one, name), getattr(two, name)} - {None} for name in _SAME]
    lists = {each.list for each in (one, two) if each.list}
    if None in (one.group_id, two.group_id) or any(len(each) > 1 for each in (*said, lists)):
        return None
    times = ("session_timeout_ms", "max_poll_interval_ms", "heartbeat_ms")
    known = {
        name: getattr(one, name) or getattr(two, name)
        for name in (*_SAME, *times, "brokers", "list", "spelled")
    }
    known["classic_only"] = tuple(sorted({*one.classic_only, *two.classic_only}))
    return replace(one, **known)
