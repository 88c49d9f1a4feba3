"""The inventory: what configuration files and Kubernetes manifests declare."""

import gzip
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import DocumentError, RebalError
from rebal.groups.model import Source
from rebal.inspectors.inventory import read_inventory

FILES = Path(__file__).parents[1] / "data/inventory"
BOTH = ("cooperative-sticky", "range")
JAVA = "org.apache.kafka.clients.consumer."


def one(path):
    reading = read_inventory(path)
    (declared,) = reading.declared
    return declared, reading.notes


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_java_clients_properties():
    declared, notes = one(FILES / "consumer.properties")
    assert declared.group_id == "checkout"
    assert (declared.client_id, declared.instance_id) == ("checkout-0", "checkout-static-0")
    assert (declared.list, declared.list_set, declared.family) == (BOTH, True, "java")
    assert declared.evidence.source is Source.CONFIG_FILE
    assert declared.where in declared.evidence.detail
    assert notes == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "c.properties",
            "bootstrap.servers=b:9092\ngroup.id=g\nsession.timeout.ms=45000\nheartbeat.interval.ms=3000\n",
        ),
        ("c.yaml", "kafka:\n  group.id: g\n  session.timeout.ms: 1\n  heartbeat-interval-ms: 2\n"),
        (
            "c.properties",
            "bootstrap.servers=b:9092\ngroup.id=g\nsession.timeout.ms=${X}\nheartbeat.interval.ms=3\n",
        ),
    ],
)
def test_settings_that_kip_848_clients_refuse(tmp_path, name, text):
    declared, _ = one(write(tmp_path, name, text))
    assert declared.classic_only == ("heartbeat.interval.ms", "session.timeout.ms")


def test_a_session_timeout_of_something_else_is_not_the_consumers(tmp_path):
    text = "server.servlet.session.timeout=30m\nspring.kafka.consumer.group-id=g\n"
    declared, _ = one(write(tmp_path, "application.properties", text))
    assert declared.classic_only == ()


def test_librdkafkas_short_names_in_json_and_yaml():
    declared, _ = one(FILES / "librdkafka.json")
    assert (declared.group_id, declared.family) == ("ml-features", "librdkafka")
    assert declared.list == ("cooperative-sticky", "roundrobin")
    declared, _ = one(FILES / "librdkafka.yaml")
    assert (declared.group_id, declared.family) == ("pricing", "librdkafka")
    assert declared.list == ("range", "roundrobin")


def test_a_spring_folder_with_profiles():
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
    # ${POD:shipping} depends on an environment that nobody knows here.
    assert {d.client_id for d in reading.declared} == {None}
    assert any("client.id from a placeholder" in note for note in reading.notes)
    assert any("profile prod" in note and "active" in note for note in reading.notes)


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
    # orders-$(POD_NAME): a Deployment's pod names are not known before they start.
    assert orders.client_id is None


def test_a_stateful_sets_pod_names_are_counted_out(shop):
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


def test_variables_of_a_services_own(shop):
    (pricing,) = _of(shop, "pricing")
    assert (pricing.list, pricing.replicas, pricing.max_surge) == (("cooperative-sticky",), 2, "0")


def test_what_a_secret_holds_is_not_known_and_that_is_said(shop):
    hidden = [d for d in shop.declared if "shop/hidden" in d.where]
    assert [(d.group_id, d.list, d.replicas) for d in hidden] == [(None, ("range",), None)]
    assert any("shop/hidden" in n and "group.id" in n for n in shop.notes)


def test_a_config_map_nobody_mounts_is_a_file_of_its_own(shop):
    (loose,) = _of(shop, "loose-group")
    assert (loose.list, loose.list_set, loose.replicas) == ((), False, None)
    assert any("broken.yaml" in note and "YAML" in note for note in shop.notes)


def test_no_value_of_a_secret_comes_out():
    everything = repr(read_inventory(FILES))
    assert "hunter2" not in everything
    assert "aHVudGVyMg" not in everything
    assert "secret-group" not in everything
    assert "c2VjcmV0" not in everything


def test_json_and_standard_input_say_the_same(tmp_path, monkeypatch, shop):
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


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.properties", f"consumer.group.id=g\nconsumer.partition.assignment.strategy={JAVA}"
         "StickyAssignor\nproducer.client.id=p", ("sticky",)),
        ("a.properties", f"spring.kafka.consumer.group-id=g\nspring.kafka.properties.partition."
         f"assignment.strategy={JAVA}RangeAssignor", ("range",)),
        ("a.properties", f"kafka.group.id=g\nkafka.partition.assignment.strategy[0]={JAVA}"
         f"CooperativeStickyAssignor\nkafka.partition.assignment.strategy[1]={JAVA}RangeAssignor",
         BOTH),
        ("a.yaml", "kafka:\n  groupId: g\n  partitionAssignmentStrategy: [roundrobin]",
         ("roundrobin",)),
        ("a.yaml", "base: &b\n  group.id: g\nkafka:\n  <<: *b\n  partition.assignment.strategy: "
         "com.acme.Mine", ("com.acme.Mine",)),
        ("a.env", "export KAFKA_CONSUMER_GROUP=g\nKAFKA_PARTITION_ASSIGNMENT_STRATEGY='range'",
         ("range",)),
        ("consumer", f"group.id=g\npartition.assignment.strategy={JAVA}RangeAssignor", ("range",)),
        ("a.yaml", "mp.messaging.incoming.orders:\n  group.id: g\n  "
         f"partition.assignment.strategy: {JAVA}RangeAssignor", ("range",)),
    ],
)  # fmt: skip
def test_spellings(tmp_path, name, text, expected):
    declared, _ = one(write(tmp_path, name, text))
    assert (declared.group_id, declared.list, declared.list_set) == ("g", expected, True)


def test_an_unset_list_is_not_a_list(tmp_path):
    declared, _ = one(write(tmp_path, "a.properties", "bootstrap.servers=x\ngroup.id=g"))
    assert (declared.list, declared.list_set) == ((), False)


def test_a_list_that_is_not_known_is_no_unset_list(tmp_path):
    text = "group.id=g\nbootstrap.servers=x\npartition.assignment.strategy=${ASSIGNORS:range}"
    reading = read_inventory(write(tmp_path, "a.properties", text))
    assert reading.declared == ()
    assert any("partition.assignment.strategy" in note for note in reading.notes)


def test_a_streams_application_is_its_application_id(tmp_path):
    text = "application.id=agg\nbootstrap.servers=x\nnum.stream.threads=2"
    declared, _ = one(write(tmp_path, "a.properties", text))
    assert (declared.group_id, declared.family, declared.list_set) == ("agg", "streams", False)


@pytest.mark.parametrize(
    ("line", "offers", "is_set"),
    [
        ("", (), False),
        ("connect.protocol=eager", ("default",), True),
        ("connect.protocol=compatible", ("compatible", "default"), True),
        ("CONNECT_CONNECT_PROTOCOL=Sessioned", ("sessioned", "compatible", "default"), True),
    ],
)
def test_a_connect_worker_declares_what_it_will_offer(tmp_path, line, offers, is_set):
    fixed = "group.id=workers\nbootstrap.servers=x\nconfig.storage.topic=c\nconsumer.group.id=g\n"
    text = f"{fixed}{line}"
    reading = read_inventory(write(tmp_path, "connect.properties", text))
    (one,) = reading.declared
    assert (one.group_id, one.family, one.list, one.list_set) == (
        "workers", "connect", offers, is_set,
    )  # fmt: skip
    assert reading.notes == ()


def test_a_connect_worker_declares_its_timeouts(tmp_path):
    text = (
        "group.id=w\nconfig.storage.topic=c\nsession.timeout.ms=12000\nrebalance.timeout.ms=70000\n"
        "scheduled.rebalance.max.delay.ms={}\nconsumer.session.timeout.ms=1\n"
    )
    for value, read in (("0", 0), ("60000", 60_000), ("soon", None)):
        (one,) = read_inventory(write(tmp_path, "w.properties", text.format(value))).declared
        timeouts = (one.session_timeout_ms, one.max_poll_interval_ms, one.held_back_ms)
        assert timeouts == (12_000, 70_000, read)


def test_a_connect_worker_whose_protocol_is_not_known_declares_nothing(tmp_path):
    for value in ("${PROTOCOL}", "newest"):
        text = f"group.id=w\nconfig.storage.topic=c\nconnect.protocol={value}"
        reading = read_inventory(write(tmp_path, "connect.properties", text))
        assert reading.declared == ()
        assert "connect.protocol" in reading.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "application.id=app\nbootstrap.servers=x\nupgrade.from=2.3\nclient.id=a",
        "spring.kafka.streams.application-id=app\nspring.kafka.streams.client-id=a\n"
        "spring.kafka.streams.properties.upgrade.from=2.3",
    ],
)
def test_a_streams_program_declares_upgrade_from(tmp_path, text):
    (one,) = read_inventory(write(tmp_path, "a.properties", text)).declared
    assert (one.group_id, one.client_id, one.family, one.upgrade_from) == (
        "app", "a", "streams", "2.3",
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["oauth2.client-id=x\nsecurity.group.id=admins", "application.id=7\nname=x", "spring.x=y"],
)
def test_other_settings_are_no_consumer(tmp_path, text):
    reading = read_inventory(write(tmp_path, "a.properties", text))
    assert reading.declared == ()
    assert reading.notes == (f"{tmp_path}/a.properties: declares no consumer "
                             "(no group.id, no assignors).",)  # fmt: skip


def _deployment(container, **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", **container}]}}, **spec},
    }


def test_arguments_override_the_environment(tmp_path):
    container = {
        "command": ["java", "-Dspring.kafka.consumer.group-id=from-d", "-jar", "a.jar"],
        "args": [f"--spring.kafka.consumer.properties.partition.assignment.strategy={JAVA}"
                 "RangeAssignor"],
        "env": [{"name": "SPRING_KAFKA_CONSUMER_GROUPID", "value": "from-env"}],
    }  # fmt: skip
    text = json.dumps(_deployment(container, replicas=2))
    declared, _ = one(write(tmp_path, "d.json", text))
    assert (declared.group_id, declared.list) == ("from-d", ("range",))
    assert (declared.replicas, declared.max_surge) == (2, "25%")


def test_a_config_map_that_is_not_there_is_said(tmp_path):
    container = {
        "envFrom": [{"configMapRef": {"name": "gone"}}],
        "env": [{"name": "KAFKA_GROUP_ID", "value": "g"}],
    }
    declared, notes = one(write(tmp_path, "d.json", json.dumps(_deployment(container))))
    assert declared.group_id == "g"
    assert any("gone" in note for note in notes)


def test_equal_groups_of_one_container_are_one_consumer(tmp_path):
    container = {
        "env": [
            {"name": "KAFKA_GROUP_ID", "value": "g"},
            {"name": "SPRING_KAFKA_CONSUMER_GROUP_ID", "value": "$(KAFKA_GROUP_ID)"},
            {
                "name": "SPRING_KAFKA_CONSUMER_PROPERTIES_PARTITION_ASSIGNMENT_STRATEGY",
                "value": f"{JAVA}RangeAssignor",
            },
        ],
    }
    declared, _ = one(write(tmp_path, "d.json", json.dumps(_deployment(container))))
    assert (declared.group_id, declared.list) == ("g", ("range",))


def test_a_folder_with_bad_files_gives_the_good_ones(tmp_path):
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


_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['{k: *' + chr(97 + n) + '}'] * 9)}]\n"
    for n in range(9)
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.yaml", b"a: [1\nb: {"),
        ("x.yaml", b"a: &a [*a]"),
        ("x.yaml", b"a: &a {b: *a}"),
        ("x.yaml", _BOMB.encode()),
        ("x.yaml", b"- " * 3000 + b"x"),
        ("x.json", b"[" * 100_000),
        ("x.json", b'{"a": 1'),
        ("x.json", b'{"a": ' + b"9" * 6000 + b"}"),
        ("x.properties", b"\x00\x00"),
        ("x", b"\x7fELF\x00"),
        ("x", b"\n"),
        ("x.yaml", b"\x1f\x8b\x08\x00broken gz data"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        read_inventory(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert "\n" not in message


def test_a_missing_path_and_an_empty_folder_are_one_sentence(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(DocumentError, match=re.escape(str(path))):
            read_inventory(path)


def _said(path):
    """Everything that the reading says in words, be it an error or notes."""
    try:
        return " ".join(read_inventory(path).notes)
    except RebalError as error:
        return str(error)


_REAL = {
    path.suffix: path.read_bytes()
    for path in (
        FILES / "kube/shop.yaml",
        FILES / "librdkafka.json",
        FILES / "consumer.properties",
    )
}


@given(
    st.sampled_from(sorted(_REAL)),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=5),
)
def test_cut_off_and_mutated_files_raise_nothing_else(tmp_path_factory, kind, length, changes):
    data = bytearray(_REAL[kind])
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.getbasetemp() / f"mutated{kind}"
    path.write_bytes(bytes(data[: int(length * len(data))]))
    assert "\n" not in _said(path)


@given(st.sampled_from(["yaml", "json", "properties", "x"]), st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(tmp_path_factory, ending, data):
    path = tmp_path_factory.getbasetemp() / f"random.{ending}"
    path.write_bytes(data)
    assert "\n" not in _said(path)


_FIELDS = (
    *("metadata", "name", "namespace", "spec", "template", "containers", "env", "envFrom"),
    *("value", "valueFrom", "data", "configMapRef", "configMapKeyRef", "key", "volumes"),
    *("volumeMounts", "configMap", "replicas", "strategy", "args"),
)
_TREE = st.recursive(
    st.none() | st.integers() | st.sampled_from(["x", "3", "${A}", "$(B)", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_FIELDS),
            inner,
            max_size=4,
        )
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
