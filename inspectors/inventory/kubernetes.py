"""The consumers that Kubernetes workloads declare, from `kubectl get deploy,sts,cm -o yaml`.

Container environments (also from ConfigMaps of the same input), mounted ConfigMap files, and
`--key=value` and `-Dkey=value` arguments are resolved. Secrets are never read: a value from a
Secret is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rebal.groups.evidence.observations import Declared
from rebal.groups.model import KubernetesWorkload
from rebal.inspectors.inventory.clients import Place, clients_in
from rebal.inspectors.inventory.documents import (
    ENDINGS,
    POD_NAME,
    Document,
    Environment,
    Flat,
    Tree,
    UnreadableDocument,
    documents,
    file_written,
    substituted,
)

Resource = dict[str, Tree]
_MOST_INSTANCES: Final = 1000
_NOT_KNOWN: Final = "${not.known}"
_REFERENCE: Final = re.compile(r"\$\$|\$\(([\w.-]+)\)")
_ARGUMENT: Final = re.compile(r"(?:--|-D)([\w.\-\[\]]+)=(\S+)")
_JAVA_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "_JAVA_OPTIONS")
_ABOUT_KAFKA: Final = re.compile(r"kafka|group[.\-]?id|partition.assignment", re.IGNORECASE)


def workloads_in(resources: Sequence[tuple[str, Resource]], notes: list[str]) -> Iterator[Declared]:
    """Yield the consumers of the workloads in `resources`, pairs of a source's name and an object.

    `where` names the object, and the pod if pods are listed one by one. Workloads with an equal
    `where` are counted once. A ConfigMap that no workload of the input uses is read like files on
    their own.
    """
    maps = {
        (_namespace(resource), _name(resource)): (source, resource)
        for source, resource in resources
        if resource.get("kind") == "ConfigMap"
    }
    used: set[tuple[str, str]] = set()
    for source, resource in resources:
        if _pod(resource):
            yield from _workload(source, resource, maps, used, notes)
    for key, (source, resource) in maps.items():
        if key not in used:
            yield from _loose_map(source, resource, notes)


def _workload(
    source: str,
    resource: Resource,
    maps: dict[tuple[str, str], tuple[str, Resource]],
    used: set[tuple[str, str]],
    notes: list[str],
) -> Iterator[Declared]:
    kind, namespace = str(resource.get("kind")), _namespace(resource)
    spec = _object(resource.get("spec"))
    pod = _pod(resource)
    name = f"{namespace}/{_name(resource)}" if namespace else _name(resource)
    for container in _objects(pod.get("containers")):
        where = f"{source}: {kind} {name}, container {_text(container.get('name')) or '?'}"
        place = Place(where, notes)
        reading = _Container(container, pod, namespace, maps, place)
        layers = reading.layers()
        used |= reading.used
        objects = [(source, resource), *(maps[key] for key in sorted(reading.used))]
        for client in clients_in(layers, reading.environment(), place):
            yield from _instances(_dated(client, objects), resource, spec)


def _pod(resource: Resource) -> Resource:
    """Return the pod that an object starts, of whatever kind it is; empty where it starts none."""
    match resource.get("spec"):
        case {"template": {"spec": dict(pod)}}:
            return pod
        case {"jobTemplate": {"spec": {"template": {"spec": dict(pod)}}}}:
            return pod
    return {}


def _instances(client: Declared, resource: Resource, spec: Resource) -> Iterator[Declared]:
    """Yield the consumer, or one for each pod if the client's ids contain the pod's name."""
    kind = str(resource.get("kind"))
    replicas = _number(spec.get("replicas"))
    owner = KubernetesWorkload(kind=kind, name=_name(resource), namespace=_namespace(resource))
    seen = replace(client.evidence, workload=owner)
    client = replace(client, max_surge=_max_surge(spec, kind), evidence=seen)
    named = POD_NAME in f"{client.group_id}{client.client_id}{client.instance_id}"
    if named and kind == "StatefulSet" and replicas is not None and replicas <= _MOST_INSTANCES:
        first = _number(_object(spec.get("ordinals")).get("start")) or 0
        for ordinal in range(first, first + replicas):
            pod_name = f"{_name(resource)}-{ordinal}"
            where = f"{client.where}, pod {pod_name}"
            evidence = replace(seen, detail=where)
            pod = replace(client, where=where, evidence=evidence, replicas=1)
            yield _with_pod_name(pod, pod_name)
        return
    yield _with_pod_name(replace(client, replicas=replicas), None)


def _with_pod_name(client: Declared, pod_name: str | None) -> Declared:
    def named(value: str | None) -> str | None:
        if value is None or POD_NAME not in value:
            return value
        return None if pod_name is None else value.replace(POD_NAME, pod_name)

    return replace(
        client,
        group_id=named(client.group_id),
        client_id=named(client.client_id),
        instance_id=named(client.instance_id),
    )


def _max_surge(spec: Resource, kind: str) -> str | None:
    """Return maxSurge; its default is 25 % for a Deployment and 0 for the others."""
    match spec.get("strategy") or spec.get("updateStrategy"):
        case {"type": "Recreate" | "OnDelete"}:
            return "0"
        case {"rollingUpdate": {"maxSurge": str(declared)}}:
            return declared
    return {"Deployment": "25%", "StatefulSet": "0", "DaemonSet": "0"}.get(kind)


def _loose_map(source: str, resource: Resource, notes: list[str]) -> Iterator[Declared]:
    name = "/".join(part for part in (_namespace(resource), _name(resource)) if part)
    for key, found in _settings_files(_object(resource.get("data"))):
        place = Place(f"{source}: ConfigMap {name}, {key}", notes)
        if isinstance(found, UnreadableDocument):
            place.note(f"cannot be read: {found.reason}")
            continue
        layers = [document.settings for document in found if document.profile is None]
        for client in clients_in(layers, Environment(), place):
            yield _dated(client, [(source, resource)])


def _dated(client: Declared, objects: Sequence[tuple[str, Resource]]) -> Declared:
    """Return the consumer with the times of the objects that declare it."""
    written = [_written(source, resource) for source, resource in objects]
    created = [_time(_object(each.get("metadata")).get("creationTimestamp")) for _, each in objects]
    known = [time for time in written if time is not None]
    at = max(known) if known and len(known) == len(written) else None
    return replace(
        client,
        created_at=max((time for time in created if time is not None), default=None),
        evidence=replace(client.evidence, at=at),
    )


def _written(source: str, resource: Resource) -> datetime | None:
    """Return when the object's text last changed; None where the input does not show it.

    An object of a cluster shows it with `kubectl get --show-managed-fields`; changes of its status
    and its number of replicas do not count. An object that was never in a cluster is as old as its
    file.
    """
    metadata = _object(resource.get("metadata"))
    if _text(metadata.get("creationTimestamp")) is None:
        return file_written(Path(source))
    changes = [
        _time(entry.get("time"))
        for entry in _objects(metadata.get("managedFields"))
        if _text(entry.get("subresource")) not in ("status", "scale")
    ]
    return max((time for time in changes if time is not None), default=None)


def _time(value: Tree) -> datetime | None:
    try:
        found = datetime.fromisoformat(_text(value) or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _settings_files(
    data: Resource,
) -> Iterator[tuple[str, list[Document] | UnreadableDocument]]:
    """Yield a ConfigMap's configuration files: their documents, or the error of one about Kafka."""
    for key, text in data.items():
        if not isinstance(text, str) or key.rpartition(".")[2].lower() not in ENDINGS:
            continue
        try:
            yield key, documents(text, key)
        except UnreadableDocument as error:
            if _ABOUT_KAFKA.search(text):
                yield key, error


class _Container:
    """One container's settings, from its mounted files to the arguments that override them."""

    def __init__(
        self,
        container: Resource,
        pod: Resource,
        namespace: str,
        maps: dict[tuple[str, str], tuple[str, Resource]],
        place: Place,
    ) -> None:
        self._note = place.note
        self.used: set[tuple[str, str]] = set()
        self._container = container
        self._pod = pod
        self._namespace = namespace
        self._maps = maps
        self._complete = True
        self._variables: dict[str, str | None] = {"HOSTNAME": POD_NAME}
        self._read_environment()

    def environment(self) -> Environment:
        return Environment(self._variables, self._complete)

    def layers(self) -> list[Flat]:
        """Return mounted files (profiles after the base), environment, inline JSON, arguments."""
        named: Flat = {
            key: _NOT_KNOWN if value is None else value for key, value in self._variables.items()
        }
        inline: Flat = {}
        if body := self._variables.get("SPRING_APPLICATION_JSON"):
            try:
                inline = {
                    k: v for d in documents(body, "inline.json") for k, v in d.settings.items()
                }
            except UnreadableDocument:
                self._note("has a SPRING_APPLICATION_JSON that is no valid JSON")
        return [*self._files(), named, inline, self._arguments()]

    def _read_environment(self) -> None:
        for source in _objects(self._container.get("envFrom")):
            prefix = _text(source.get("prefix")) or ""
            reference = _object(source.get("configMapRef"))
            data = self._map(_text(reference.get("name"))) if reference else None
            if data is None:
                self._complete = False
                if reference and _text(reference.get("optional")) != "true":
                    self._note(
                        f"takes its environment from ConfigMap {_text(reference.get('name'))}, "
                        "which is not in the input"
                    )
                continue
            self._variables |= {prefix + key: _text(value) for key, value in data.items()}
        for entry in _objects(self._container.get("env")):
            name = _text(entry.get("name"))
            if name is not None:
                self._variables[name] = self._variable(name, entry)

    def _variable(self, name: str, entry: Resource) -> str | None:
        match entry.get("valueFrom"):
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                return POD_NAME
            case {"fieldRef": {"fieldPath": "metadata.namespace"}}:
                return self._namespace or None
            case {"configMapKeyRef": dict(reference)} if reference:
                data = self._map(_text(reference.get("name"))) or {}
                found = _text(data.get(_text(reference.get("key")) or ""))
                if found is None and _ABOUT_KAFKA.search(name):
                    self._note(
                        f"takes {name} from ConfigMap {_text(reference.get('name'))}, "
                        "which is not in the input or lacks the key"
                    )
                return found
            case dict(other) if other:
                return None
        return self._expand(_text(entry.get("value")) or "")

    def _expand(self, value: str) -> str | None:
        """Return `value` with each `$(NAME)` of an earlier variable replaced."""

        def value_of(match: re.Match[str]) -> str | None:
            name = match[1]
            return "$" if name is None else self._variables.get(name, match[0])

        return substituted(_REFERENCE, value, value_of)

    def _map(self, name: str | None) -> Resource | None:
        key = (self._namespace, name or "")
        if key not in self._maps:
            return None
        self.used.add(key)
        return _object(self._maps[key][1].get("data"))

    def _files(self) -> list[Flat]:
        mounted = {_text(m.get("name")) for m in _objects(self._container.get("volumeMounts"))}
        base: list[Flat] = []
        profiled: list[tuple[str, Flat]] = []
        for volume in _objects(self._pod.get("volumes")):
            if _text(volume.get("name")) not in mounted:
                continue
            for reference in _config_maps(volume):
                data = self._map(_text(reference.get("name")))
                for key, found in _settings_files(data or {}):
                    if isinstance(found, UnreadableDocument):
                        self._note(f"mounts {key}, which cannot be read: {found.reason}")
                        continue
                    base += [d.settings for d in found if d.profile is None]
                    profiled += [(d.profile, d.settings) for d in found if d.profile is not None]
        active = (self._variables.get("SPRING_PROFILES_ACTIVE") or "").split(",")
        return base + [flat for profile, flat in profiled if profile in active]

    def _arguments(self) -> Flat:
        texts = [
            text
            for key in ("command", "args")
            for text in _list(self._container.get(key))
            if isinstance(text, str)
        ]
        # A value may be an argument of its own.
        apart = [(one, two) for one, two in pairwise(texts) if one.startswith("--")]
        texts += [f"{one}={two}" for one, two in apart if "=" not in one and two[:1] != "-"]
        texts += [self._variables.get(name) or "" for name in _JAVA_OPTIONS]
        return {
            match[1]: match[2].strip("'\"")
            for text in texts
            for match in _ARGUMENT.finditer(self._expand(text) or "")
        }


def _config_maps(volume: Resource) -> list[Resource]:
    direct = _object(volume.get("configMap"))
    projected = _objects(_object(volume.get("projected")).get("sources"))
    return [r for r in (direct, *(_object(s.get("configMap")) for s in projected)) if r]


def _namespace(resource: Resource) -> str:
    return _text(_object(resource.get("metadata")).get("namespace")) or ""


def _name(resource: Resource) -> str:
    return _text(_object(resource.get("metadata")).get("name")) or ""


def _object(value: Tree) -> Resource:
    return value if isinstance(value, dict) else {}


def _list(value: Tree) -> list[Tree]:
    return value if isinstance(value, list) else []


def _objects(value: Tree) -> list[Resource]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _text(value: Tree) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Tree) -> int | None:
    text = _text(value)
    return int(text) if text is not None and text.isdecimal() and len(text) < 7 else None
