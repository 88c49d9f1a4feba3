"""The table of products: its form, and what it says of versions that public threads are about."""

import re
from pathlib import Path

import pytest

from rebal.groups import clients
from rebal.groups.model import RebalanceProtocol
from rebal.inspectors.manifests.products import Dependency, client_of, products
from tests.manifests.folders import read_folder

ECOSYSTEMS = {"maven", "golang", "npm", "pypi", "gem", "nuget", "cargo", "hex", "docker"}
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def facts(ecosystem: str, name: str, version: str | None):
    return client_of(Dependency(ecosystem, name, version, "file"))


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
        (("docker", "logstash/logstash", "8.14.0"),
         ("java", "3.4.1", ("range", "cooperative-sticky"), EAGER)),
        (("docker", "fluent/fluent-bit", "1.9-debug"),
         ("librdkafka", None, ("range", "roundrobin"), EAGER)),
        (("docker", "debezium/connect", "2.1"),
         ("java", "3.3.1", ("range", "cooperative-sticky"), EAGER)),
        (("docker", "logstash/logstash", "7.10.0"),
         ("java", "2.4.1", ("range",), EAGER)),
        (("maven", "org.springframework.kafka:spring-kafka", "2.7.14"),
         ("java", "2.7.2", ("range",), EAGER)),
        (("maven", "org.springframework.kafka:spring-kafka", "2.8.0"),
         ("java", "3.0.0", ("range", "cooperative-sticky"), EAGER)),
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
        (("gem", "ruby-kafka", "1.0.0"),
         (None, None, ("roundrobin",), EAGER)),
        (("npm", "kafkajs", "2.2.4"),
         ("kafkajs", "2.2.4", ("RoundRobinAssigner",), EAGER)),
        (("golang", "github.com/twmb/franz-go", "v1.18.0"),
         ("franz-go", "v1.18.0", ("cooperative-sticky",), COOPERATIVE)),
    ],
)  # fmt: skip
def test_a_version_shows_the_library_and_its_default_list(
    asked: tuple[str, str, str | None], expected: tuple[object, ...]
) -> None:
    found = facts(*asked)
    assert found is not None
    library = found.library.key if found.library else None
    assert (library, found.library_version, found.default_list, found.protocol) == expected


def test_the_collectors_key_takes_a_list_since_it_was_added() -> None:
    name = "otel/opentelemetry-collector-contrib"
    old, new = (facts("docker", name, version) for version in ("0.140.0", "0.154.0"))
    assert (old.list_key, new.list_key) == (
        "group_rebalance_strategy", "group_rebalance_strategies",
    )  # fmt: skip
    assert "0.154.0" in old.refuses
    assert new.refuses is None
    assert "takes one name" in facts("docker", "logstash", "8.14.0").refuses


def test_flink_and_spark_use_no_group_protocol() -> None:
    for name in ("flink:flink-connector-kafka", "spark:spark-sql-kafka-0-10_2.12"):
        found = facts("maven", f"org.apache.{name}", "3.4.0")
        assert not found.group_protocol
        assert found.default_list is None


def test_a_package_that_is_no_client_has_no_facts() -> None:
    assert facts("maven", "org.slf4j:slf4j-api", "2.0.0") is None
    assert facts("npm", "org.apache.kafka:kafka-clients", "3.0.0") is None


BOOT = """<project><parent><groupId>org.springframework.boot</groupId>
<artifactId>spring-boot-starter-parent</artifactId><version>{version}</version></parent>
<properties>{properties}</properties><dependencies>
<dependency><groupId>org.springframework.kafka</groupId><artifactId>spring-kafka</artifactId>
</dependency><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
</dependency></dependencies></project>"""
CLIENTS = "org.apache.kafka:kafka-clients"
PARENT = "org.springframework.boot:spring-boot-starter-parent"


@pytest.mark.parametrize(
    ("version", "properties", "expected"),
    [
        ("3.5.3", "", {CLIENTS: "3.9.1", PARENT: "3.5.3"}),
        ("3.5.3", "<kafka.version>3.8.0</kafka.version>", {CLIENTS: "3.8.0"}),
        ("99.0.0", "", {CLIENTS: None, PARENT: "99.0.0"}),
    ],
)
def test_spring_boot_gives_the_version_that_a_pom_leaves_out(
    version: str, properties: str, expected: dict[str, str | None], tmp_path: Path
) -> None:
    (tmp_path / "pom.xml").write_text(BOOT.format(version=version, properties=properties))
    reading = read_folder(tmp_path)
    wrapper = {"org.springframework.kafka:spring-kafka": None}
    assert {one.name: one.version for one in reading.dependencies} == wrapper | expected


def test_a_product_that_set_a_list_once_hides_that_of_its_library() -> None:
    knative = facts("docker", "knative-releases/knative-kafka-broker-dispatcher", "99.0.0")
    quarkus = facts("maven", "io.quarkus:quarkus-kafka-client", "99.0.0")
    assert (knative.own_list, quarkus.own_list) == (True, False)


def test_an_extension_of_quarkus_has_the_version_of_its_platform(tmp_path: Path) -> None:
    (tmp_path / "pom.xml").write_text(
        "<project><dependencyManagement><dependencies><dependency>"
        "<groupId>io.quarkus.platform</groupId><artifactId>quarkus-bom</artifactId>"
        "<version>3.33.1</version><scope>import</scope></dependency></dependencies>"
        "</dependencyManagement><dependencies><dependency><groupId>io.quarkus</groupId>"
        "<artifactId>quarkus-kafka-streams</artifactId></dependency></dependencies></project>"
    )
    (one,) = read_folder(tmp_path).dependencies
    assert (one.name, one.version) == ("io.quarkus:quarkus-kafka-streams", "3.33.1")


def test_a_property_of_gradle_gives_a_version_to_the_scripts_below(tmp_path: Path) -> None:
    for folder, text in ((".", "kafkaVersion=3.9.1\norg.gradle.caching=true\n"), ("app", "")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "gradle.properties").write_text(text)
    script = 'implementation "org.apache.kafka:kafka-clients:$kafkaVersion"\n'
    (tmp_path / "app" / "build.gradle").write_text(script)
    assert [one.version for one in read_folder(tmp_path).dependencies] == ["3.9.1"]


def test_a_bom_without_a_dependency_on_kafka_is_not_named(tmp_path: Path) -> None:
    text = BOOT.format(version="3.5.3", properties="<kafka>1</kafka>")
    (tmp_path / "pom.xml").write_text(text[: text.index("<dependencies>")] + "</project>")
    (tmp_path / "build.gradle").write_text(
        "// kafka\nplugins { id 'org.springframework.boot' version '3.5.3' }\n"
    )
    assert read_folder(tmp_path).dependencies == ()


def test_a_module_takes_versions_and_properties_from_its_parents(tmp_path: Path) -> None:
    parent = (
        "<project><groupId>g</groupId><artifactId>top</artifactId><properties><k>3.6.0</k>"
        "</properties><dependencyManagement><dependencies><dependency>"
        "<groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>"
        "<version>${k}</version></dependency></dependencies></dependencyManagement></project>"
    )
    child = (
        "<project><parent><groupId>g</groupId><artifactId>{name}</artifactId></parent>"
        "<dependencies><dependency><groupId>org.apache.kafka</groupId>"
        "<artifactId>kafka-clients</artifactId></dependency></dependencies></project>"
    )
    for folder, name in (("a", "top"), ("b", "stranger")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pom.xml").write_text(child.format(name=name))
    (tmp_path / "pom.xml").write_text(parent)
    reading = read_folder(tmp_path)
    assert {one.where: one.version for one in reading.dependencies} == {
        "pom.xml": "3.6.0", "a/pom.xml": "3.6.0", "b/pom.xml": None,
    }  # fmt: skip
    assert reading.notes == (f"b/pom.xml: the version of {CLIENTS} is not written there.",)


@pytest.mark.parametrize(
    ("own", "profiles", "version", "note"),
    [
        ("3.9.1", ["2.8.2"], None, "3.9.1 or 2.8.2"),
        ("3.9.1", ["3.9.1"], "3.9.1", ""),
        ("", ["3.9.1", "2.8.2", "3.9.1"], None, "3.9.1 or 2.8.2"),
        ("", ["3.9.1"], "3.9.1", ""),
    ],
)
def test_a_version_that_the_active_profile_decides_is_not_known(
    own: str, profiles: list[str], version: str | None, note: str, tmp_path: Path
) -> None:
    tables = [f"<properties><k>{each}</k></properties>" for each in profiles]
    (tmp_path / "pom.xml").write_text(
        "<project><dependencies><dependency><groupId>org.apache.kafka</groupId>"
        "<artifactId>kafka-clients</artifactId><version>${k}</version></dependency></dependencies>"
        f"<profiles>{''.join(f'<profile>{each}</profile>' for each in tables)}</profiles>"
        f"{f'<properties><k>{own}</k></properties>' if own else ''}</project>"
    )
    reading = read_folder(tmp_path)
    assert [one.version for one in reading.dependencies] == [version]
    said = f"pom.xml: the version of {CLIENTS} is not a plain one ({note})."
    assert reading.notes == ((said,) if note else ())


@pytest.mark.parametrize(
    ("other", "version"),
    [
        ("resolutionStrategy {{ force '{}:3.9.1' }}", None),
        ("    testImplementation '{}:3.9.1'", "2.8.2"),
        ("dependencies {{ integrationTestRuntimeOnly '{}:3.9.1' }}", "2.8.2"),
        ("    implementation '{}:2.8.2'", "2.8.2"),
    ],
)
def test_a_script_with_two_versions_does_not_say_which_one_counts(
    other: str, version: str | None, tmp_path: Path
) -> None:
    script = f"implementation '{CLIENTS}:2.8.2'\n{other.format(CLIENTS)}\n"
    (tmp_path / "build.gradle").write_text(script)
    reading = read_folder(tmp_path)
    assert [(one.version, one.where) for one in reading.dependencies] == [
        (version, "build.gradle:1")
    ]
    said = f"build.gradle:1: the version of {CLIENTS} is not a plain one (2.8.2 or 3.9.1)."
    assert reading.notes == (() if version else (said,))


def test_a_module_takes_versions_from_a_bom_beside_it_and_quarkus_by_its_properties(
    tmp_path: Path,
) -> None:
    top = (
        "<project><groupId>g</groupId><artifactId>top</artifactId><properties>"
        "<q>quarkus-bom</q></properties><dependencyManagement><dependencies>{}{}</dependencies>"
        "</dependencyManagement><dependencies>{}{}</dependencies></project>"
    )
    each = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>{}</dependency>"
    (tmp_path / "shop-bom").mkdir()
    (tmp_path / "shop-bom/pom.xml").write_text(
        "<project><groupId>g</groupId><artifactId>shop-bom</artifactId><dependencyManagement>"
        "<dependencies>"
        + each.format("org.apache.kafka", "kafka-streams", "<version>3.9.1</version>")
        + "</dependencies></dependencyManagement></project>"
    )
    (tmp_path / "pom.xml").write_text(
        top.format(
            each.format("g", "shop-bom", "<version>1</version><scope>import</scope>"),
            each.format("io.quarkus", "${q}", "<version>3.27.0</version><scope>import</scope>"),
            each.format("org.apache.kafka", "kafka-streams", ""),
            each.format("org.apache.kafka", "kafka-clients", ""),
        )
    )
    reading = read_folder(tmp_path / "pom.xml"), read_folder(tmp_path)
    alone, whole = ({one.name: one.version for one in each.dependencies} for each in reading)
    streams = "org.apache.kafka:kafka-streams"
    assert alone == {streams: None, CLIENTS: "4.0.0", "io.quarkus:quarkus-bom": "3.27.0"}
    assert whole == alone | {streams: "3.9.1"}
    assert [note for each in reading for note in each.notes] == []


def test_projects_of_dotnet_take_central_versions(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "Directory.Packages.props").write_text(
        "<Project><PropertyGroup><K>2.6.1</K></PropertyGroup><ItemGroup>"
        '<PackageVersion Include="Confluent.Kafka" Version="$(K)" /></ItemGroup></Project>'
    )
    (tmp_path / "src/A.csproj").write_text(
        '<Project><ItemGroup><PackageReference Include="Confluent.Kafka" /></ItemGroup></Project>'
    )
    reading = read_folder(tmp_path)
    assert {one.where: one.version for one in reading.dependencies} == {
        "Directory.Packages.props": "2.6.1", "src/A.csproj": "2.6.1",
    }  # fmt: skip
