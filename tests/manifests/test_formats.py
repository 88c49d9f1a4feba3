"""Manifests: formats, versions, products, and files that want to do harm."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebal.groups import clients
from rebal.groups.clients import Library, default_list
from rebal.groups.model import RebalanceProtocol
from rebal.groups.protocol import list_protocol
from rebal.inspectors.manifests.reader import _FORMATS, library_of, products
from tests.manifests.folders import place, read_folder

FILES = Path(__file__).parents[1] / "data/manifests"
EXPECTED: dict[str, list[str]] = yaml.safe_load((FILES / "expected.yaml").read_text())
# Helm's chart gives the tag that its values leave out.
UNWRITTEN = {
    "chart/values.yaml": "values.yaml: the version of grafana/promtail is not written there."
}


def line(one: Library) -> str:
    return f"{one.ecosystem} {one.package} {one.product_version} {place(one)}"


@pytest.mark.parametrize("name", EXPECTED)
def test_each_manifest_format_gives_its_kafka_clients_and_products(name: str) -> None:
    file = FILES / name
    for root in (file, file.parent):
        reading = read_folder(root)
        assert [line(one) for one in reading.libraries] == EXPECTED[name]
        assert list(reading.notes) == [text for key, text in UNWRITTEN.items() if key == name]


def test_all_manifest_formats_in_one_repository_are_read() -> None:
    reading = read_folder(FILES)
    assert len(reading.libraries) == sum(map(len, EXPECTED.values()))
    assert {one.where.partition("/")[0] for one in reading.libraries} == {
        name.partition("/")[0] for name in EXPECTED
    }


def rows(text: str) -> list[list[str]]:
    """The cells of a page's table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


PAGE = (FILES.parents[2] / "docs/manifests.md").read_text().partition("A version is taken")


def test_docs_manifests_names_each_manifest_format() -> None:
    named = [pattern for row in rows(PAGE[0]) for pattern in re.findall("`(.*?)`", row[0])]
    assert sorted(named) == sorted({known.pattern for known in _FORMATS})


@pytest.mark.parametrize("row", rows(PAGE[2]), ids=lambda row: row[0])
def test_docs_manifests_names_each_products_default_assignor_list(row: list[str]) -> None:
    table = {one.product: one for one in products().values()}
    for name in re.sub(r" (to|from) .*| \(.*?\)", "", row[0]).split(", "):
        found = next(one for title, one in table.items() if name in title)
        release = found.releases[0 if " to " in row[0] else -1] if found.releases else None
        own = (release and release.list) or found.list
        own = own or default_list(found.library, release and release.inside)
        shown = re.findall("`(.*?)`", row[2])
        assert shown == (list(own or ()) if found.group_protocol else [])


def test_hidden_package_and_test_folders_are_skipped(tmp_path: Path) -> None:
    for folder in ("node_modules/a", ".cache", "vendor/b", "src/test/c", "tests/d", "testdata"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "go.mod").write_text("require github.com/IBM/sarama v1.43.3\n")
    assert read_folder(tmp_path).libraries == ()


def test_a_python_lock_file_replaces_version_ranges_beside_and_below_it(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    project = '[project]\ndependencies = ["aiokafka>=0.11"]\n'
    (tmp_path / "service/pyproject.toml").write_text(project)
    (tmp_path / "pyproject.toml").write_text(project)
    assert [one.product_version for one in read_folder(tmp_path).libraries] == [None, None]
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "aiokafka"\nversion = "0.12.0"\n')
    (one,) = read_folder(tmp_path).libraries
    assert (one.product_version, one.where) == ("0.12.0", "uv.lock")


DATA = Path(__file__).parents[1] / "data/check"
KEPT: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "versions.yaml").read_text())
OF_TESTS: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "of_tests.yaml").read_text())


@pytest.mark.parametrize("case", KEPT)
def test_a_client_version_is_found_where_a_build_keeps_it(case: str, tmp_path: Path) -> None:
    found = read_folder(tmp_path, KEPT[case]["files"])
    names = ((re.split("[:/]", one.package)[-1], one) for one in found.libraries)
    lines = sorted(f"{name} {one.product_version} {place(one)}" for name, one in names)
    notes = [note[note.rindex("(") : -1] for note in found.notes]
    assert "; ".join([*lines, *notes]) == KEPT[case]["finds"]


@pytest.mark.parametrize("case", OF_TESTS)
def test_a_test_only_dependency_is_no_client_of_the_service(case: str, tmp_path: Path) -> None:
    found = read_folder(tmp_path, OF_TESTS[case]["files"]).libraries
    assert sorted(one.package for one in found) == OF_TESTS[case]["finds"]


ECOSYSTEMS = {"maven", "golang", "npm", "pypi", "gem", "nuget", "cargo", "hex", "docker"}
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def facts(ecosystem: str, name: str, version: str | None):
    return library_of(ecosystem, name, version)


def test_every_product_has_its_source_and_every_family_exists() -> None:
    table = products()
    assert {ecosystem for ecosystem, _ in table} == ECOSYSTEMS
    assert len({product.product for product in table.values()}) >= 55
    for product in table.values():
        assert re.fullmatch(r"https://[^ ;]+", product.source), product.product
        for one in (product, *product.releases):
            assert one.library is None or one.library in clients.families(), product.product
            assert one.refuses is None or one.refuses.endswith("."), product.product
            assert one.source is None or re.fullmatch(r"https://[^ ;]+", one.source)


def test_ranges_of_versions_are_ordered_and_do_not_overlap() -> None:
    for product in products().values():
        edges = [
            clients.version_tuple(edge)
            for release in product.releases
            for edge in (release.first, release.last)
        ]
        assert edges == sorted(edges), product.product
        firsts = [clients.version_tuple(release.first) for release in product.releases]
        assert len(set(firsts)) == len(firsts), product.product
        for release in product.releases:
            assert release.inside is None or clients.version_tuple(release.inside)


def test_no_name_means_two_products() -> None:
    named = [(id(product), name) for product in products().values() for name in product.names]
    assert len({name for _, name in named}) == len(set(named))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("docker", "otel/opentelemetry-collector-contrib", "0.116.0"),
         ("sarama", None, ("range",), EAGER)),
        (("docker", "otel/opentelemetry-collector-contrib", "0.138.0"),
         ("franz-go", None, ("cooperative-sticky",), COOPERATIVE)),
        (("docker", "otel/opentelemetry-collector-contrib", "99.0.0"),
         (None, None, None, None)),
        (("docker", "fluent/fluent-bit", "1.9-debug"),
         ("librdkafka", None, ("range", "roundrobin"), EAGER)),
        (("docker", "debezium/connect", "2.1"),
         ("java", "3.3.1", ("range", "cooperative-sticky"), EAGER)),
        (("maven", "org.springframework.kafka:spring-kafka", "2.7.14"),
         ("java", "2.7.2", ("range",), EAGER)),
        (("maven", "org.springframework.kafka:spring-kafka", None),
         ("java", None, None, None)),
        (("maven", "com.github.fd4s:fs2-kafka_2.13", "3.5.1"),
         ("java", "3.7.0", ("range", "cooperative-sticky"), EAGER)),
        (("pypi", "confluent-kafka", "2.7.0"),
         ("librdkafka", "2.6.1", ("range", "roundrobin"), EAGER)),
        (("cargo", "rdkafka-sys", "4.7.0+2.3.0"),
         ("librdkafka", "2.3.0", ("range", "roundrobin"), EAGER)),
        (("gem", "ruby-kafka", "0.7.10"),
         (None, None, ("standard",), None)),
        (("npm", "kafkajs", "2.2.4"),
         ("kafkajs", "2.2.4", ("RoundRobinAssigner",), EAGER)),
        (("golang", "github.com/twmb/franz-go", "v1.18.0"),
         ("franz-go", "v1.18.0", ("cooperative-sticky",), COOPERATIVE)),
    ],
)  # fmt: skip
def test_a_product_version_gives_its_library_and_default_assignor_list(
    asked: tuple[str, str, str | None], expected: tuple[object, ...]
) -> None:
    found = facts(*asked)
    assert found is not None
    protocol = list_protocol(found.default_list, found.family) if found.default_list else None
    assert (found.family, found.version, found.default_list, protocol) == expected


def test_the_otel_collector_accepts_an_assignor_list_since_0_154_0() -> None:
    name = "otel/opentelemetry-collector-contrib"
    old, new = (facts("docker", name, version) for version in ("0.140.0", "0.154.0"))
    assert (old.list_key, new.list_key) == (
        "group_rebalance_strategy", "group_rebalance_strategies",
    )  # fmt: skip
    assert "0.154.0" in old.refuses
    assert new.refuses is None
    assert "takes one name" in facts("docker", "logstash", "8.14.0").refuses


def test_a_package_that_is_no_client_has_no_facts() -> None:
    assert facts("maven", "org.slf4j:slf4j-api", "2.0.0") is None
    assert facts("npm", "org.apache.kafka:kafka-clients", "3.0.0") is None


def test_a_product_that_once_set_an_assignor_list_hides_its_librarys_default() -> None:
    knative = facts("docker", "knative-releases/knative-kafka-broker-dispatcher", "99.0.0")
    quarkus = facts("maven", "io.quarkus:quarkus-kafka-client", "99.0.0")
    assert (knative.own_list, quarkus.own_list) == (True, False)


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
def test_a_bad_manifest_gives_one_note_and_the_others_are_read(
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
def test_an_npm_lock_file_of_another_shape_gives_no_version(value: object, tmp_path: Path) -> None:
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
def test_a_maven_range_or_placeholder_version_is_named_and_not_guessed(
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


def test_a_very_long_line_in_a_manifest_is_read_in_time(tmp_path: Path) -> None:
    long = "kafka " + "a" * 100_000 + ":" + '"' * 100_000 + "'a.b:" * 10_000
    for name in ("go.mod", "yarn.lock", "pnpm-lock.yaml", "Gemfile.lock", "mix.lock",
                 "build.gradle", "requirements.txt", "Dockerfile"):  # fmt: skip
        (tmp_path / name).write_text(long + " sarama\n" + long.replace("a", " ") + "brod vector")
    assert read_folder(tmp_path).libraries == ()


def test_pipes_folders_and_broken_symlinks_are_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go.mod")
    (tmp_path / "pom.xml").mkdir()
    (tmp_path / "yarn.lock").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert read_folder(tmp_path) == read_folder(tmp_path / "pom.xml")


def test_a_file_name_that_is_not_utf_8_is_made_printable(tmp_path: Path) -> None:
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


def test_poms_that_are_each_others_parents_cause_no_endless_loop(tmp_path: Path) -> None:
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
