"""The table of products: its form, and what it says of versions that public threads are about."""

import re

import pytest

from rebal.groups import clients
from rebal.groups.model import RebalanceProtocol
from rebal.groups.protocol import list_protocol
from rebal.inspectors.manifests.products import library_of, products

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
def test_a_version_shows_the_library_and_its_default_list(
    asked: tuple[str, str, str | None], expected: tuple[object, ...]
) -> None:
    found = facts(*asked)
    assert found is not None
    protocol = list_protocol(found.default_list, found.family) if found.default_list else None
    assert (found.family, found.version, found.default_list, protocol) == expected


def test_the_collectors_key_takes_a_list_since_it_was_added() -> None:
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


def test_a_product_that_set_a_list_once_hides_that_of_its_library() -> None:
    knative = facts("docker", "knative-releases/knative-kafka-broker-dispatcher", "99.0.0")
    quarkus = facts("maven", "io.quarkus:quarkus-kafka-client", "99.0.0")
    assert (knative.own_list, quarkus.own_list) == (True, False)
