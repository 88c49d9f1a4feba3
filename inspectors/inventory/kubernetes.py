"""The consumers that Kubernetes workloads declare, from `kubectl get deploy,sts,cm -o yaml`.

Container environments (also from ConfigMaps of the same input), mounted ConfigMap files, and
`--key=value` and `-Dkey=value` arguments are resolved. Secrets are never read: a value from a
Secret is not known.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rebal.groups.evidence.observations import Declared
from rebal.groups.model import KubernetesWorkload
from rebal.inspectors.inventory.clients import Dates, Part, Place, clients_in, consumers_of, number
from rebal.inspectors.inventory.documents import (
    ENDINGS,
    NOT_KNOWN,
    POD_NAME,
    ConfigDocument,
    Environment,
    Flat,
    Tree,
    UnreadableDocument,
    documents,
    file_written,
    flatten,
    layer_prefix,
    mapping,
    str_or_none,
)

Resource = dict[str, Tree]
# ConfigMaps with their sources, by folder (empty: any), namespace and name.
Maps = dict[tuple[str, str, str], tuple[str, Resource]]
_MOST_INSTANCES: Final = 1000
_ABOUT_KAFKA: Final = re.compile(r"kafka|group[.\-]?id|partition.assignment", re.IGNORECASE)


def workloads_in(resources: Sequence[tuple[str, Resource]], notes: list[str]) -> Iterator[Declared]:
    """Yield the consumers that Kubernetes objects declare.

    `resources` are pairs of a source's name, such as a file, and an object. A consumer's `where`
    names the object, and the pod if each pod is yielded on its own. If ConfigMaps have equal names,
    a workload uses the one in its own folder. A ConfigMap that no workload uses is read as
    configuration files.
    """
    maps = {
        (folder, _namespace(resource), _name(resource)): (source, resource)
        for source, resource in resources
        if resource.get("kind") == "ConfigMap"
        for folder in ("", source.rpartition("/")[0])
    }
    used: set[tuple[str, str, str]] = set()
    for source, resource in resources:
        if _pod(resource):
            yield from _workload(source, resource, maps, used, notes)
        # Strimzi's objects: one connector, and the workers with their default group.
        spec = mapping(resource.get("spec"))
        named: Resource = {
            "KafkaConnector": {"name": _name(resource), "connector.class": spec.get("class")},
            "KafkaConnect": {
                "group.id": spec.get("groupId") or "connect-cluster",
                "config.storage.topic": spec.get("configStorageTopic"),
            },
        }.get(str(resource.get("kind")), {})
        if named:
            found = clients_in(
                [flatten({**named, **mapping(spec.get("config"))}, source)],
                Environment(),
                Place(f"{source}: {_name(resource)}", notes, _dates(source, resource)),
            )
            replicas = number(str_or_none(spec.get("replicas")))
            yield from (replace(client, replicas=replicas) for client in found)
    for key, (source, resource) in maps.items():
        if not key[0] and key not in used:
            yield from _loose_map(source, resource, notes)


def _workload(
    source: str,
    resource: Resource,
    maps: Maps,
    used: set[tuple[str, str, str]],
    notes: list[str],
) -> Iterator[Declared]:
    pod = _pod(resource)
    for container in _objects(pod.get("containers")):
        where = f"{_title(source, resource)}, container {str_or_none(container.get('name')) or '?'}"
        place = Place(where, notes, _dates(source, resource))
        reading = _Container(
            container, pod, (source.rpartition("/")[0], _namespace(resource)), maps, place, used
        )
        layers = reading.layers()
        for client in clients_in(layers, Environment(reading.variables, reading.complete), place):
            yield from _instances(replace(client, sources=tuple(reading.sources)), resource)


def _pod(resource: Resource) -> Resource:
    """Return the pod spec in an object of any kind; empty if the object starts no pod."""
    match resource.get("spec"):
        case {"template": {"spec": dict(pod)}} | {
            "jobTemplate": {"spec": {"template": {"spec": dict(pod)}}}
        }:
            return pod
    return {}


def _instances(client: Declared, resource: Resource) -> Iterator[Declared]:
    """Yield a workload's consumer with the workload's name, replicas and maxSurge.

    A consumer whose ids contain the pod's name is yielded once for each pod of a StatefulSet with
    known replicas, up to 1000. Any other consumer is yielded once, with None for each id that
    contains the pod's name.
    """
    kind, spec = str(resource.get("kind")), mapping(resource.get("spec"))
    replicas = number(str_or_none(spec.get("replicas")))
    seen = replace(
        client.evidence,
        workload=KubernetesWorkload(
            kind=kind, name=_name(resource), namespace=_namespace(resource)
        ),
    )
    made = replace(client, max_surge=_max_surge(spec, kind), replicas=replicas, evidence=seen)
    ids = {name: getattr(client, name) or "" for name in ("group_id", "client_id", "instance_id")}
    named = {name: value for name, value in ids.items() if POD_NAME in value}
    if not named or kind != "StatefulSet" or replicas is None or replicas > _MOST_INSTANCES:
        # The pods' names are not known before they start.
        yield replace(made, by_pod="instance_id" in named, **dict.fromkeys(named))
        return
    first = number(str_or_none(mapping(spec.get("ordinals")).get("start"))) or 0
    for ordinal in range(first, first + replicas):
        pod = f"{_name(resource)}-{ordinal}"
        where = f"{client.where}, pod {pod}"
        yield replace(
            made,
            where=where,
            evidence=replace(seen, detail=where),
            replicas=1,
            **{name: value.replace(POD_NAME, pod) for name, value in named.items()},
        )


def _max_surge(spec: Resource, kind: str) -> str | None:
    """Return the workload's maxSurge, as text; `0` if its strategy is Recreate or OnDelete.

    If it is not set, it is 25% for a Deployment, 0 for a StatefulSet or DaemonSet, and None for
    other kinds.
    """
    match spec.get("strategy") or spec.get("updateStrategy"):
        case {"type": "Recreate" | "OnDelete"}:
            return "0"
        case {"rollingUpdate": {"maxSurge": str(declared)}}:
            return declared
    return {"Deployment": "25%", "StatefulSet": "0", "DaemonSet": "0"}.get(kind)


def _loose_map(source: str, resource: Resource, notes: list[str]) -> Iterator[Declared]:
    whole, dates = Place(_title(source, resource), notes), _dates(source, resource)
    settings: dict[str, list[Part]] = {}
    for key, found in _settings_files(mapping(resource.get("data")), whole, "has"):
        settings.setdefault(layer_prefix(key), []).extend(
            (f"{whole.where}, {key}", dates, document) for document in found
        )
    for process in settings.values():
        yield from consumers_of(process, notes)


def _dates(source: str, resource: Resource) -> Dates:
    """Return when the object was last changed, and when it was created (each None: not known).

    The changes of a cluster's object are known from `kubectl get --show-managed-fields`; those of
    its status or number of replicas do not count. For an object that was never in a cluster, the
    change is that of the file `source`, and the creation is None.
    """
    metadata = mapping(resource.get("metadata"))
    if str_or_none(metadata.get("creationTimestamp")) is None:
        return file_written(Path(source)), None
    changes = [
        _time(entry.get("time"))
        for entry in _objects(metadata.get("managedFields"))
        if str_or_none(entry.get("subresource")) not in ("status", "scale")
    ]
    return max(filter(None, changes), default=None), _time(metadata.get("creationTimestamp"))


def _time(value: Tree) -> datetime | None:
    try:
        found = datetime.fromisoformat(str_or_none(value) or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _settings_files(
    data: Resource, place: Place, verb: str
) -> Iterator[tuple[str, list[ConfigDocument]]]:
    """Yield (key, documents) for each configuration file in the `data` of a ConfigMap.

    If a file about Kafka cannot be read, `place` gets the note "PLACE `verb` FILE, which cannot be
    read", with `verb` such as `mounts`.
    """
    for key, text in data.items():
        if not isinstance(text, str) or key.rpartition(".")[2].lower() not in ENDINGS:
            continue
        try:
            yield key, documents(text, key)
        except UnreadableDocument as error:
            if _ABOUT_KAFKA.search(text):
                place.note(f"{verb} {key}, which cannot be read: {error.reason}")


@dataclass
class _Container:
    """The settings of one container in a workload's pod.

    `at` is the folder of the workload's file, and the namespace. `complete` is False if some of the
    environment `variables` are not known. `maps` are the ConfigMaps of the input; of those that the
    container uses, the keys are added to `used` and the files' names to `sources`.
    """

    container: Resource
    pod: Resource
    at: tuple[str, str]
    maps: Maps
    place: Place
    used: set[tuple[str, str, str]]
    sources: list[str] = field(default_factory=list)
    complete: bool = True
    variables: Flat = field(default_factory=lambda: {"HOSTNAME": POD_NAME})

    def layers(self) -> list[Flat]:
        """Return the container's layers of settings; later layers override earlier ones.

        They are the mounted files (profiles after the base), the environment, the JSON in
        SPRING_APPLICATION_JSON, and the arguments.
        """
        self._read_environment()
        files, inline = self._files(), list[ConfigDocument]()
        try:
            inline = documents(self.variables.get("SPRING_APPLICATION_JSON") or "{}", "inline.json")
        except UnreadableDocument:
            self.place.note("has a SPRING_APPLICATION_JSON that is not known, or no valid JSON")
        return [*files, self.variables, *(one.settings for one in inline), self._arguments()]

    def _read_environment(self) -> None:
        for source in _objects(self.container.get("envFrom")):
            prefix = str_or_none(source.get("prefix")) or ""
            reference = mapping(source.get("configMapRef"))
            data = self._map(str_or_none(reference.get("name"))) if reference else None
            self.complete = self.complete and data is not None
            if data is None and reference and str_or_none(reference.get("optional")) != "true":
                self.place.note(
                    f"takes its environment from ConfigMap {str_or_none(reference.get('name'))}, "
                    "which is not in the input"
                )
            for key, value in (data or {}).items():
                self.variables[prefix + key] = str_or_none(value) or ""
        for entry in _objects(self.container.get("env")):
            name = str_or_none(entry.get("name"))
            if name is not None:
                self.variables[name] = self._variable(name, entry)

    def _variable(self, name: str, entry: Resource) -> str:
        match entry.get("valueFrom"):
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                return POD_NAME
            case {"fieldRef": {"fieldPath": "metadata.namespace"}}:
                return self.at[1] or NOT_KNOWN
            case {"configMapKeyRef": dict(reference)} if reference:
                data = self._map(str_or_none(reference.get("name"))) or {}
                found = str_or_none(data.get(str_or_none(reference.get("key")) or ""))
                if found is None and _ABOUT_KAFKA.search(name):
                    self.place.note(
                        f"takes {name} from ConfigMap {str_or_none(reference.get('name'))}, "
                        "which is not in the input or lacks the key"
                    )
                return NOT_KNOWN if found is None else found
            case dict(other) if other:
                return NOT_KNOWN
        return self._expand(str_or_none(entry.get("value")) or "")

    def _expand(self, value: str) -> str:
        """Return `value` with each `$(NAME)` of an earlier variable replaced; `$$` becomes `$`."""
        known = {"": "$", **self.variables}
        return re.sub(
            r"\$\$|\$\(([\w.-]+)\)", lambda match: known.get(match[1] or "", match[0]), value
        )

    def _map(self, name: str | None) -> Resource | None:
        of_any = ("", self.at[1], name or "")
        found = self.maps.get((*self.at, name or "")) or self.maps.get(of_any)
        if found is None:
            return None
        self.used.add(of_any)
        self.sources.append(found[0])
        self.place.dates.append(_dates(*found))
        return mapping(found[1].get("data"))

    def _files(self) -> list[Flat]:
        mounted = {str_or_none(m.get("name")) for m in _objects(self.container.get("volumeMounts"))}
        found: list[ConfigDocument] = []
        for volume in _objects(self.pod.get("volumes")):
            projected = _objects(mapping(volume.get("projected")).get("sources"))
            for source in (
                (volume, *projected) if str_or_none(volume.get("name")) in mounted else ()
            ):
                if reference := mapping(source.get("configMap")):
                    data = self._map(str_or_none(reference.get("name"))) or {}
                    for _, each in _settings_files(data, self.place, "mounts"):
                        found += each
        active = self.variables.get("SPRING_PROFILES_ACTIVE", "").split(",")
        ordered = sorted(found, key=lambda one: one.profile is not None)
        return [one.settings for one in ordered if one.profile in (None, *active)]

    def _arguments(self) -> Flat:
        texts = [
            text
            for key in ("command", "args")
            for text in _list(self.container.get(key))
            if isinstance(text, str)
        ]
        # A value may be an argument of its own.
        apart = [(one, two) for one, two in pairwise(texts) if one.startswith("--")]
        texts += [f"{one}={two}" for one, two in apart if "=" not in one and two[:1] != "-"]
        texts += [
            self.variables.get(name, "")
            for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "_JAVA_OPTIONS")
        ]
        return {
            match[1]: match[2].strip("'\"")
            for text in texts
            for match in re.finditer(r"(?:--|-D)([\w.\-\[\]]+)=(\S+)", self._expand(text))
        }


def _title(source: str, resource: Resource) -> str:
    name = "/".join(filter(None, (_namespace(resource), _name(resource))))
    return f"{source}: {resource.get('kind')} {name}"


def _namespace(resource: Resource) -> str:
    return str_or_none(mapping(resource.get("metadata")).get("namespace")) or ""


def _name(resource: Resource) -> str:
    return str_or_none(mapping(resource.get("metadata")).get("name")) or ""


def _list(value: Tree) -> list[Tree]:
    return value if isinstance(value, list) else []


def _objects(value: Tree) -> list[Resource]:
    return [item for item in _list(value) if isinstance(item, dict)]
