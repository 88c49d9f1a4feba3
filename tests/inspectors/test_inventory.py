"""The inventory: what files declare of clients, and the timeouts of members from every source."""

import gzip
import io
import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebal.cli.output import render
from rebal.cli.render.inspection.screen import inspect_view
from rebal.cli.report import make_report
from rebal.groups.errors import DocumentError, RebalError
from rebal.groups.evidence.merge import merge
from rebal.groups.evidence.observations import Declared, Joined
from rebal.groups.model import Evidence, GroupSnapshot, KubernetesWorkload, Source, Timeouts
from rebal.inspectors.inventory import documents
from rebal.inspectors.inventory.reader import read_inventory
from tests.groups.observed import at, declared, group, joined, member
from tests.tables import table

FILES = Path(__file__).parents[1] / "data/inventory"
BOTH = ("cooperative-sticky", "range")
JAVA = "org.apache.kafka.clients.consumer."


def one(path: Path) -> tuple[Declared, tuple[str, ...]]:
    """The one consumer that is declared there, and the notes."""
    reading = read_inventory(path)
    (declared,) = reading.declared
    return declared, reading.notes


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_java_properties_file_declares_its_ids_and_assignor_list():
    declared, notes = one(FILES / "consumer.properties")
    assert declared.group_id == "checkout"
    assert (declared.client_id, declared.instance_id) == ("checkout-0", "checkout-static-0")
    assert (declared.list, declared.family) == (BOTH, "java")
    assert declared.evidence.source is Source.CONFIG_FILE
    assert declared.where in declared.evidence.detail
    assert notes == ()


@pytest.mark.parametrize("text", table("inventory", "classic_only"))
def test_settings_that_kip_848_clients_reject_are_marked_classic_only(tmp_path, text):
    fixed = "bootstrap.servers=b:9092\ngroup.id=g\n"
    declared, _ = one(write(tmp_path, "c.properties", fixed + text))
    assert declared.classic_only == ("heartbeat.interval.ms", "session.timeout.ms")
    assert declared.list == ()


def test_librdkafkas_assignor_names_are_read_from_json_and_yaml():
    declared, _ = one(FILES / "librdkafka.json")
    assert (declared.group_id, declared.family) == ("ml-features", "librdkafka")
    assert declared.list == ("cooperative-sticky", "roundrobin")
    declared, _ = one(FILES / "librdkafka.yaml")
    assert (declared.group_id, declared.family) == ("pricing", "librdkafka")
    assert declared.list == ("range", "roundrobin")


@pytest.mark.parametrize(("settings", "expected"), table("inventory", "sinks"))
def test_a_sink_connectors_overrides_are_its_consumers_settings(tmp_path, settings, expected):
    sink = "connector.class=io.S3SinkConnector\ntopics=orders\n"
    found = read_inventory(write(tmp_path, "sink.properties", sink + settings)).declared
    shown = [(each.group_id, each.list, each.group_protocol) for each in found]
    assert shown == ([expected] if expected else [])


def test_a_quarkus_program_runs_with_its_prod_settings(tmp_path):
    text = (
        "%prod.kafka.group.id=orders\nkafka.bootstrap.servers=b:9092\nkafka.group.id=local\n"
        "%dev,test.kafka.partition.assignment.strategy=org.apache.kafka.clients.consumer."
        "StickyAssignor\n"
    )
    (tmp_path / "application.properties").write_text(text)
    found = {one.where.rpartition(" ")[2]: one for one in read_inventory(tmp_path).declared}
    assert {one.group_id for one in found.values()} == {"orders"}
    assert [one.list for one in found.values()] == [(), ("sticky",), ("sticky",)]


def test_each_spring_profile_declares_its_own_settings():
    reading = read_inventory(FILES / "spring")
    by_profile = {
        (re.search(r"profile (\w+)", d.where) or [None, None])[1]: d for d in reading.declared
    }
    assert {p: (d.list, d.group_protocol) for p, d in by_profile.items()} == {
        None: (("range",), None),
        "prod": (BOTH, None),
        "next": (("range",), "consumer"),
    }
    assert {d.group_id for d in reading.declared} == {"shipping-group"}
    # ${POD:shipping} depends on an environment that is unknown here.
    assert {d.client_id for d in reading.declared} == {None}
    assert any("client.id from a placeholder" in note for note in reading.notes)
    assert any("profile prod" in note and "active" in note for note in reading.notes)


@pytest.mark.parametrize(("name", "text", "expected"), table("inventory", "spellings"))
def test_each_spelling_of_an_assignor_list_is_read(tmp_path, name, text, expected):
    declared, _ = one(write(tmp_path, name, text))
    assert (declared.group_id, declared.list) == ("g", expected)


@pytest.mark.parametrize(("line", "offers", "held_back"), table("inventory", "workers"))
def test_a_connect_workers_file_declares_protocols_and_timeouts(tmp_path, line, offers, held_back):
    text = (
        "group.id=workers\nbootstrap.servers=x\nconfig.storage.topic=c\nconsumer.group.id=g\n"
        "session.timeout.ms=12000\nrebalance.timeout.ms=70000\nconsumer.session.timeout.ms=1\n"
    )
    declared, notes = one(write(tmp_path, "connect.properties", text + line))
    assert (declared.group_id, declared.family, declared.list) == ("workers", "connect", offers)
    timeouts = (declared.session_timeout_ms, declared.max_poll_interval_ms, declared.held_back_ms)
    assert timeouts == (12_000, 70_000, held_back)
    assert notes == ()


@pytest.mark.parametrize(("text", "named"), table("inventory", "unknown_lists"))
def test_a_consumer_of_unknown_assignor_list_declares_nothing(tmp_path, text, named):
    fixed = "group.id=g\nbootstrap.servers=x\n"
    reading = read_inventory(write(tmp_path, "connect.properties", fixed + text))
    assert reading.declared == ()
    assert named in reading.notes[0]


@pytest.mark.parametrize("text", table("inventory", "streams"))
def test_a_streams_program_declares_upgrade_from(tmp_path, text):
    (one,) = read_inventory(write(tmp_path, "a.properties", text)).declared
    assert (one.group_id, one.client_id, one.family, one.upgrade_from) == (
        "app", "a", "streams", "2.3",
    )  # fmt: skip


@pytest.mark.parametrize("text", table("inventory", "no_consumers"))
def test_a_file_without_group_id_and_assignors_declares_no_consumer(tmp_path, text):
    reading = read_inventory(write(tmp_path, "a.properties", text))
    assert reading.declared == ()
    assert reading.notes == (f"{tmp_path}/a.properties: declares no consumer "
                             "(no group.id, no assignors).",)  # fmt: skip


@pytest.fixture(scope="module")
def shop():
    return read_inventory(FILES / "kube")


def _of(shop, group_id):
    return [d for d in shop.declared if d.group_id == group_id]


def test_a_deployments_environment_overrides_its_config_map(shop):
    (orders,) = _of(shop, "orders")
    assert (orders.list, orders.replicas, orders.max_surge) == (BOTH, 4, "1")
    assert orders.family == "java"
    assert "Deployment shop/orders, container app" in orders.where
    assert orders.evidence.workload == KubernetesWorkload(
        kind="Deployment", name="orders", namespace="shop"
    )
    # orders-$(POD_NAME): a Deployment's pod names are not known before they start.
    assert orders.client_id is None


def test_each_pod_of_a_stateful_set_is_declared_with_its_instance_id(shop):
    billing = _of(shop, "billing")
    assert [(d.instance_id, d.replicas) for d in billing] == [
        ("billing-0", 1),
        ("billing-1", 1),
        ("billing-2", 1),
    ]
    assert {d.list for d in billing} == {("cooperative-sticky",)}
    # Its environment is known in full, so the default of ${BILLING_GROUP:billing} holds.
    assert {d.max_surge for d in billing} == {"0"}
    assert len({d.where for d in billing}) == 3
    assert len({d.evidence.workload for d in billing}) == 1


def test_settings_in_a_kubernetes_secret_are_unknown_and_named_in_notes(shop):
    hidden = [d for d in shop.declared if "shop/hidden" in d.where]
    assert [(d.group_id, d.list, d.replicas) for d in hidden] == [(None, ("range",), None)]
    notes = [note for note in shop.notes if "shop/hidden" in note]
    for unknown in ("group.id", "client.id", "SPRING_APPLICATION_JSON"):
        assert any(unknown in note for note in notes)


def test_a_config_map_that_no_workload_mounts_is_declared_alone(shop):
    (loose,) = _of(shop, "loose-group")
    assert (loose.list, loose.replicas) == ((), None)
    assert loose.evidence.workload is None
    assert any("broken.yaml" in note and "YAML" in note for note in shop.notes)


def test_no_value_of_a_kubernetes_secret_is_read():
    everything = repr(read_inventory(FILES))
    assert "hunter2" not in everything
    assert "aHVudGVyMg" not in everything
    assert "secret-group" not in everything
    assert "c2VjcmV0" not in everything


def test_json_and_standard_input_declare_the_same(tmp_path, monkeypatch, shop):
    text = (FILES / "kube/shop.yaml").read_text()
    path = write(tmp_path, "shop.json", json.dumps(yaml.safe_load(text)))

    def facts(reading):
        return [(d.group_id, d.instance_id, d.list, d.replicas) for d in reading.declared]

    assert facts(read_inventory(path)) == facts(shop)
    packed = gzip.compress(text.encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    from_stdin = read_inventory(Path("-"))
    assert facts(from_stdin) == facts(shop)
    assert from_stdin.declared[0].where.startswith("standard input: ")


def _deployment(container, **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", **container}]}}, **spec},
    }


def test_container_arguments_override_its_environment(tmp_path):
    container = table("inventory", "overriding")
    text = json.dumps(_deployment(container, replicas=2))
    declared, notes = one(write(tmp_path, "d.json", text))
    assert any("gone" in note for note in notes)
    assert (declared.group_id, declared.list) == ("from-d", ("range",))
    assert (declared.replicas, declared.max_surge) == (2, "25%")


def test_two_variables_with_one_group_id_declare_one_consumer(tmp_path):
    container = table("inventory", "one_consumer")
    declared, _ = one(write(tmp_path, "d.json", json.dumps(_deployment(container))))
    assert (declared.group_id, declared.list) == ("g", ("range",))


def _deployed(times: dict[str, str | None], *, exported: bool) -> str:
    """A Deployment and its ConfigMap, each with the time of its last change."""

    def metadata(name: str) -> dict[str, object]:
        made: dict[str, object] = {"name": name}
        if exported:
            fields = [{"manager": "x", "subresource": "status", "time": "2026-11-20T23:00:00Z"}]
            if times[name] is not None:
                fields.append({"manager": "kubectl", "time": times[name]})
            made |= {"creationTimestamp": "2026-11-01T08:00:00Z", "managedFields": fields}
        return made

    settings = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("settings"),
        "data": {"SPRING_KAFKA_CONSUMER_GROUP_ID": "orders"},
    }  # fmt: skip
    app = _deployment({"envFrom": [{"configMapRef": {"name": "settings"}}]}, replicas=1)
    return yaml.safe_dump_all([settings, {**app, "metadata": metadata("orders")}])


@pytest.mark.parametrize(
    ("times", "written"),
    [
        (("2026-11-20T09:00:00Z", "2026-11-20T08:00:00Z"), 9),
        (("2026-11-20T09:00:00Z", "2026-11-20T10:00:00Z"), 10),
        (("2026-11-20T09:00:00Z", None), None),
    ],
)
def test_exported_kubernetes_objects_are_dated_by_their_last_change(
    tmp_path: Path, times: tuple[str, str | None], written: int | None
) -> None:
    changed = dict(zip(("orders", "settings"), times, strict=True))
    declared, _ = one(write(tmp_path, "kube.yaml", _deployed(changed, exported=True)))
    at = None if written is None else datetime(2026, 11, 20, written, tzinfo=UTC)
    assert declared.evidence.at == at
    assert declared.created_at == datetime(2026, 11, 1, 8, tzinfo=UTC)


def test_a_kubernetes_manifest_is_dated_by_its_files_time(tmp_path: Path) -> None:
    file = write(tmp_path, "kube.yaml", _deployed({}, exported=False))
    os.utime(file, (0, 1_700_000_000))
    declared, _ = one(file)
    assert declared.evidence.at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert declared.created_at is None


def test_good_files_are_read_and_bad_ones_are_named_in_notes(tmp_path):
    shutil.copy(FILES / "consumer.properties", tmp_path / "good.properties")
    write(tmp_path, "bad.yaml", "a: [1\nb: {")
    write(tmp_path, "bad.json", "{")
    (tmp_path / "binary.yml").write_bytes(b"\x00\x01\x02")
    write(tmp_path, "Dockerfile", "FROM scratch")
    write(tmp_path, ".hidden.properties", "group.id=hidden\nbootstrap.servers=x")
    reading = read_inventory(tmp_path)
    assert [d.group_id for d in reading.declared] == ["checkout"]
    said = " ".join(reading.notes)
    assert all(name in said for name in ("bad.yaml", "bad.json", "binary.yml", "Dockerfile"))
    assert all("\n" not in note and note.endswith(".") for note in reading.notes)


@pytest.mark.parametrize(
    ("start", "line", "said"),
    [
        ("apiVersion: v1\nitems:\n", "- kind: Pod\n", "the list's kind is missing behind line 80"),
        ("", "- a\n", "holds no Kubernetes objects"),
        ("schema: rebal.snapshot/1\nmembers:\n", "- a: b\n", "holds no Kubernetes objects"),
    ],
)
def test_a_large_file_that_is_cut_off_or_no_manifest_is_rejected_unparsed(
    tmp_path, monkeypatch, start, line, said
):
    monkeypatch.setattr(documents, "_LARGEST_YAML", 4_000)
    monkeypatch.setattr(documents.yaml, "load_all", None)
    write(tmp_path, "pods.yaml", start + line * ((4_100 // len(line)) if line[2] != "k" else 800))
    with pytest.raises(DocumentError, match=said):
        read_inventory(tmp_path / "pods.yaml")


_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['{k: *' + chr(97 + n) + '}'] * 9)}]\n"
    for n in range(9)
)


@pytest.mark.parametrize("again", ["${a0}" * 20, ""])
def test_placeholders_that_multiply_each_other_are_left_unknown(tmp_path, again):
    lines = [f"a{n}=" + f"${{a{n + 1}}}" * 20 for n in range(20)]
    path = write(
        tmp_path, "c.properties", "\n".join(["kafka.group.id=${a0}", *lines, f"a20={again}x"])
    )
    (declared,) = read_inventory(path).declared
    assert declared.group_id is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.yaml", b"a: &a [*a]"),
        ("x.yaml", _BOMB.encode()),
        ("x.yaml", b"- " * 100_000 + b"x"),
        ("x.yaml", b"[" * 100_000),
        ("x.json", b"[" * 100_000),
        ("x.json", b'{"a": 1'),
        ("x.properties", b"\x00\x00"),
        ("x", b"\n"),
        ("x.yaml", b"\x1f\x8b\x08\x00broken gz data"),
    ],
)
def test_a_bad_inventory_file_is_reported_in_one_sentence(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        read_inventory(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert "\n" not in message


def _said(path):
    """Everything that the reading says in words, be it an error or notes."""
    try:
        return " ".join(read_inventory(path).notes)
    except RebalError as error:
        return str(error)


_REAL = {
    path.suffix: path.read_bytes()
    for path in (FILES / "kube/shop.yaml", FILES / "librdkafka.json", FILES / "consumer.properties")
}


@given(
    st.sampled_from(sorted(_REAL)),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=5),
)
def test_cut_off_and_mutated_files_raise_only_rebal_errors(tmp_path_factory, kind, length, changes):
    data = bytearray(_REAL[kind])
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.getbasetemp() / f"mutated{kind}"
    path.write_bytes(bytes(data[: int(length * len(data))]))
    assert "\n" not in _said(path)


_FIELDS = (
    *("metadata", "name", "namespace", "spec", "template", "containers", "env", "envFrom"),
    *("value", "valueFrom", "data", "configMapRef", "configMapKeyRef", "key", "volumes"),
    *("volumeMounts", "configMap", "replicas", "strategy", "args"),
)
_TREE = st.recursive(
    st.none() | st.integers() | st.sampled_from(["x", "3", "${A}", "$(B)", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.sampled_from(["Deployment", "StatefulSet", "ConfigMap", "List"]), _TREE, _TREE)
def test_objects_of_the_wrong_shape_raise_nothing(tmp_path_factory, kind, spec, rest):
    path = tmp_path_factory.getbasetemp() / "shape.json"
    item = {"apiVersion": "v1", "kind": kind, "spec": spec, "data": rest, "metadata": rest}
    pod = {"template": {"spec": {"containers": [rest, spec], "volumes": spec}}}
    items = [item, {**item, "spec": pod}, {**item, "items": [item]}]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    reading = read_inventory(path)
    assert all(isinstance(d.where, str) for d in reading.declared)


@pytest.mark.parametrize(
    ("form", "lines", "expected"),
    [(form, *row) for form in ("properties", "spring") for row in table("timeouts", form)],
)
def test_configuration_files_declare_the_timeouts_of_members(
    tmp_path: Path, form: str, lines: tuple[str, str], expected: tuple[int | None, int | None]
) -> None:
    name = "application.yaml" if form == "spring" else "c.properties"
    text = table("timeouts", "forms")[form].format(*lines)
    found, notes = one(write(tmp_path, name, text))
    assert (found.session_timeout_ms, found.max_poll_interval_ms) == expected
    assert notes == ()


def joins(minute: int, session: int | None, source: Source = Source.REQUEST_LOG) -> Joined:
    waits = {"session_timeout_ms": session, "rebalance_timeout_ms": session and 300_000}
    evidence = Evidence(source=source, at=at(minute))
    return joined("a", "range", minute=minute, evidence=evidence, **waits)


@pytest.fixture
def merged() -> GroupSnapshot:
    seen = [
        joins(1, 45_000),
        joins(2, 45_000, Source.CLIENT_LOG),
        joins(3, None),
        declared("b.properties", client_id="b", session_timeout_ms=20_000),
    ]
    made = merge(group(member("a"), member("b")), seen)
    assert merge(made, reversed(seen)) == made
    return made


def test_a_members_timeouts_come_from_its_join_and_not_from_a_file(merged: GroupSnapshot) -> None:
    a, b = merged.members
    assert (a.timeouts.session_ms, a.timeouts.rebalance_ms) == (45_000, 300_000)
    assert [item.source for item in a.timeouts.evidence] == [Source.REQUEST_LOG, Source.CLIENT_LOG]
    # A file declares the next start's timeouts.
    assert b.timeouts is None
    assert (b.declared.session_timeout_ms, b.declared.max_poll_interval_ms) == (20_000, None)


def test_the_wide_screen_shows_timeouts_their_sources_and_defaults(merged: GroupSnapshot) -> None:
    def screen(snapshot: GroupSnapshot, *, wide: bool) -> str:
        return render(inspect_view(make_report(snapshot), "", wide=wide), width=200)

    (line,) = (one for one in screen(merged, wide=True).splitlines() if one.startswith("waits"))
    assert "session timeout 20 to 45 s (client log, config file, request log)" in line
    by = "(client log, request log; of 1 not known, and a default of Java's clients)"
    assert f"rebalance timeout up to 300 s {by}" in line
    assert "waits" not in screen(merged, wide=False)


def test_the_newest_join_decides_a_members_timeouts() -> None:
    seen = [joins(2, 30_000), joins(1, 45_000)]
    (one,) = merge(group(member("a")), seen).members
    assert one.timeouts == Timeouts(
        session_ms=30_000, rebalance_ms=300_000, evidence=(seen[0].evidence,)
    )
