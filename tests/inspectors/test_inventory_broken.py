"""The inventory of broken, cut off and hostile files: one sentence each, and the rest is read."""

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebal.groups.errors import DocumentError, RebalError
from rebal.inspectors.inventory import documents
from rebal.inspectors.inventory.reader import read_inventory
from tests.inspectors.declared_files import FILES, write


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
def test_placeholders_of_each_other_take_no_time(tmp_path, again):
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
def test_a_bad_file_is_one_sentence(tmp_path, name, data):
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
def test_cut_off_and_mutated_files_raise_nothing_else(tmp_path_factory, kind, length, changes):
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
