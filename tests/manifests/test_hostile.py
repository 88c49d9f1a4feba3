"""Broken and hostile manifests: one note each, no traceback, and the other files are read."""

import json
import os
from pathlib import Path

import pytest

from tests.manifests.folders import read_folder

POM = "<project><dependencies>%s</dependencies></project>"
KAFKA = (
    "<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>"
    "<version>%s</version></dependency>"
)
LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY a "kafka-clients">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 9}">' for n in range(9))
    + "]><project>&j;</project>"
)
OUTSIDE = '<!DOCTYPE p [<!ENTITY x SYSTEM "file:///etc/passwd">]><project>kafka &x;</project>'
DEEP = 100_000
ALIASES = "kind: A\napiVersion: a\na: &a [otel/opentelemetry-collector, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['{k: *' + chr(97 + n) + '}'] * 9)}]\n"
    for n in range(9)
)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pom.xml", POM % KAFKA % "3.7.1" + "<", "not valid XML"),
        ("pom.xml", (POM % KAFKA % "3.7.1")[:-20], "not valid XML"),
        ("pom.xml", LAUGHS, "declares a DTD"),
        ("pom.xml", OUTSIDE, "declares a DTD"),
        ("pom.xml", "kafka" + "<a>" * DEEP, "not valid XML"),
        ("package-lock.json", '{"packages": {"node_modules/kafkajs": ', "not valid JSON"),
        ("poetry.lock", '[[package]]\nname = "kafka-python', "not valid TOML"),
        ("uv.lock", 'name = "kafka-python"\na = ' + "[" * DEEP, "not valid TOML"),
        ("Cargo.lock", "rdkafka = " + "9" * 100_000, "not valid TOML"),
        ("g.versions.toml", "kafka = 1\nkafka = 2", "not valid TOML"),
        ("pyproject.toml", 'kafka = "\ud800', "not valid TOML"),
        ("compose.yaml", "image: [otel/opentelemetry-collector-contrib", "not valid YAML"),
        ("compose.yaml", ALIASES, "more settings than any configuration file has"),
        ("go.mod", "require github.com/IBM/sarama v1.43.3\n\0", "is a binary file"),
        ("go.mod", "BZh91AY&SY", "is compressed (bz2)"),
        ("go.mod", "require github.com/IBM/sarama ../fork", None),
    ],
)
def test_a_bad_file_is_one_note_and_the_others_are_read(
    name: str, text: str, said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    (tmp_path / "mix.lock").write_text('  "brod": {:hex, :brod, "3.16.0", "ab"},\n')
    reading = read_folder(tmp_path)
    assert reading.libraries[-1].package == "brod" or reading.libraries[0].package == "brod"
    (note,) = reading.notes
    assert note.startswith(f"bad/{name}")
    assert "\n" not in note
    assert note.endswith(".")
    assert len(note) < 400
    if said:
        assert said in note
        assert len(reading.libraries) == 1


@pytest.mark.parametrize(
    "value",
    [None, 1, "kafkajs", [], {}, {"packages": []}, {"packages": {"node_modules/kafkajs": 3}},
     {"dependencies": {"kafkajs": {"version": 2, "dependencies": [1]}}}],
)  # fmt: skip
def test_a_tree_of_another_shape_gives_no_version(value: object, tmp_path: Path) -> None:
    (tmp_path / "package-lock.json").write_text(json.dumps([value, "kafkajs"][:1]))
    (tmp_path / "npm-shrinkwrap.json").write_text(json.dumps(value))
    reading = read_folder(tmp_path)
    assert {one.product_version for one in reading.libraries} <= {None, "2", "3"}


@pytest.mark.parametrize(
    ("version", "raw"),
    [
        ("${kafka.version}", "(${kafka.version})"),
        ("[3.0,4.0)", "([3.0,4.0))"),
        ("3.+", "(3.+)"),
        ("LATEST", "(LATEST)"),
        ("9" * 100_000 + "/", "(" + "9" * 80 + ")"),
        ("${a}${a}${a}", "(${a}${a}${a})"),
    ],
)
def test_a_version_that_is_no_plain_one_is_named_and_not_guessed(
    version: str, raw: str, tmp_path: Path
) -> None:
    bomb = "<properties><a>${b}${b}${b}</a><b>${a}${a}${a}</b></properties>"
    pom = (POM % KAFKA % version).replace("<project>", "<project>" + bomb)
    (tmp_path / "pom.xml").write_text(pom)
    reading = read_folder(tmp_path)
    assert [one.product_version for one in reading.libraries] == [None]
    (note,) = reading.notes
    assert note.startswith("pom.xml: the version of org.apache.kafka:kafka-clients is not a plain")
    assert raw in note or "{a}" in raw


def test_a_very_long_line_takes_no_time(tmp_path: Path) -> None:
    long = "kafka " + "a" * 100_000 + ":" + '"' * 100_000 + "'a.b:" * 10_000
    for name in ("go.mod", "yarn.lock", "pnpm-lock.yaml", "Gemfile.lock", "mix.lock",
                 "build.gradle", "requirements.txt", "Dockerfile"):  # fmt: skip
        (tmp_path / name).write_text(long + " sarama\n" + long.replace("a", " ") + "brod vector")
    assert read_folder(tmp_path).libraries == ()


def test_files_that_are_no_files_are_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go.mod")
    (tmp_path / "pom.xml").mkdir()
    (tmp_path / "yarn.lock").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert read_folder(tmp_path) == read_folder(tmp_path / "pom.xml")


def test_a_name_that_is_not_utf8_is_printable(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\n"
    os.mkdir(folder)
    with open(folder + b"/go.mod", "w") as file:
        file.write("require github.com/IBM/sarama v1.43.3\n")
    with open(folder + b"/pom.xml", "w") as file:
        file.write("kafka")
    reading = read_folder(tmp_path)
    (one,) = reading.libraries
    assert one.where == "??/go.mod"
    assert "??/pom.xml" in reading.notes[0]


def test_poms_that_are_each_others_parents_end(tmp_path: Path) -> None:
    for own, other in (("a", "b"), ("b", "a")):
        (tmp_path / own).mkdir()
        (tmp_path / own / "pom.xml").write_text(
            f"<project><artifactId>{own}</artifactId><parent><artifactId>{other}</artifactId>"
            f"<relativePath>../{other}</relativePath></parent><dependencies>"
            + KAFKA % "${missing}"
            + "</dependencies></project>"
        )
    assert [one.product_version for one in read_folder(tmp_path).libraries] == [None, None]


def test_an_escape_sequence_in_a_mirrors_name_does_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\x1b[31m/otel/opentelemetry-collector:${X}\n")
    reading = read_folder(tmp_path)
    said = reading.libraries[0].package + reading.notes[0]
    assert "a?[31m/otel" in said
    assert said.isprintable()
