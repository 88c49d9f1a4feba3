"""Secured listeners: each kind of login is read in full, and rights are told apart."""

import tempfile
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from rebal.groups.compact import Replicas
from rebal.groups.model import Broker as Described
from rebal.groups.model import GroupSnapshot, Tri
from rebal.inspectors.connection.config import ClusterConfig, resolve
from rebal.inspectors.connection.translate import to_confluent
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.doctor import DoctorReport, examine
from rebal.inspectors.kafka.read import GroupFailure, read_groups
from rebal.inspectors.kafka.session import Session
from rebal.inspectors.kafka.wire import Deadline
from tests.kafka.broker import Broker, wait_for
from tests.kafka.members import Members, Rolling, wait_assigned
from tests.live_support import config_of, read


@pytest.fixture
def group(kafka41: Broker, members: Members, group_id: str, topic_name: str) -> str:
    """A group with one member that runs."""
    service = Rolling(kafka41, members, group_id, topic_name, partitions=2, software="java-3.9.1")
    service.begin(["m"], ["range"])
    return group_id


def read_in_full(config: ClusterConfig, group_id: str) -> GroupSnapshot:
    """Read a group of which nothing is withheld."""
    found = read(config, group_id, probe=True)
    assert found.notes == ()
    assert found.members[0].subscription is not None
    assert found.lag
    assert found.probe is not None
    assert {each.assignor: each.supported for each in found.probe.answers}["range"] is Tri.YES
    return found


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "SSL"])
def test_every_login_mechanism_reads_all_facts(kafka41: Broker, group: str, mechanism: str) -> None:
    read_in_full(config_of(kafka41, mechanism), group)


def test_pem_text_inside_client_properties_is_written_to_no_file(
    kafka41: Broker, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = kafka41.certificates.identity("admin").read_text()
    at = pem.index("-----BEGIN CERTIFICATE")
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pem[:at],
        "ssl.keystore.certificate.chain": pem[at:],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": kafka41.certificates.ca.read_text(),
    }
    lines = [f"{key}={value.replace(chr(10), chr(92) + 'n')}" for key, value in settings.items()]
    file = kafka41.folder / "inline.properties"
    file.write_text("\n".join(lines))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    config = resolve(kafka41.bootstrap_tls, (), file, None, {}, 8000)
    assert read(config, group).notes == ()
    assert list(tmp_path.iterdir()) == []
    assert "PRIVATE" not in repr(config)


def test_topics_and_settings_equal_those_librdkafka_reads(kafka41: Broker, topic_name: str) -> None:
    kafka41.create_topic(topic_name, 2)
    config = config_of(kafka41, "SCRAM-SHA-256")
    admin = AdminClient(to_confluent(config))
    deadline = Deadline(20_000)
    with RawCluster(config) as raw:
        ours = Session(raw)
        cluster = admin.describe_cluster().result(20)
        described, _ = Session(raw).cluster(1, deadline)
        assert described.cluster_id == cluster.cluster_id
        assert described.brokers == (Described(broker_id=1),)
        found, failed = ours.topics([topic_name, "nothing-here"], deadline)
        assert failed.keys() == {"nothing-here"}
        names = TopicCollection([topic_name])
        theirs = admin.describe_topics(names)[topic_name].result(20)
        assert [len(theirs.partitions)] == [topic.partitions for topic in found]
        assert found[0].replicas == Replicas(
            [node.id for node in part.replicas] for part in theirs.partitions
        )
        resource = ConfigResource(ResourceType.BROKER, "1")
        settings = admin.describe_configs([resource])[resource].result(20)
        assert ours.settings(1, deadline) == {
            name: entry.value
            for name, entry in settings.items()
            if entry.value is not None and not entry.is_sensitive
        }
        assert ours.edges(topic_name, 2, deadline) == dict.fromkeys(range(2), (0, 0, 0))
        parts = [(topic_name, 0), (topic_name, 1), (topic_name, 9), ("nothing-here", 0)]
        assert ours.ends(parts, deadline) == dict.fromkeys(parts[:2], 0)
        everything = {topic.name: topic for topic in ours.topics(None, deadline)[0]}
        assert everything[topic_name] == found[0]
        assert everything.keys() == admin.list_topics(timeout=20).topics.keys()


def available(report: DoctorReport) -> dict[str, Tri]:
    return {row.source: row.available for row in report.rows}


@pytest.mark.usefixtures("without_rights")
def test_doctor_reports_each_missing_acl_with_the_command_that_grants_it(
    kafka41: Broker, members: Members, group: str, topic_name: str
) -> None:
    other = f"{group}-other"
    member = members.start("java-3.9.1", kafka41, "o", other, topics=[topic_name])
    wait_assigned([member], 2)
    limited = config_of(kafka41, "SCRAM-SHA-256", "limited")

    bare = examine(limited, group)
    assert available(bare) == {
        "login": Tri.YES,
        "list groups": Tri.NO,
        "brokers' clock": Tri.NO,
        "describe the group": Tri.NO,
        "describe topics": Tri.CANNOT_TELL,
        "offsets and lag": Tri.NO,
        "broker settings": Tri.NO,
        "group settings": Tri.NO,
        "probe": Tri.CANNOT_TELL,
        "offsets topic": Tri.NO,
        "request log switch": Tri.NO,
        "client logs, config files": Tri.YES,
    }
    grants = {row.source: row.grant for row in bare.rows}
    tool = f"kafka-acls.sh --bootstrap-server {kafka41.bootstrap_sasl}"
    begin = f"{tool} --command-config ADMIN.properties --add"
    assert grants["describe the group"] == (
        f"{begin} --allow-principal User:limited --operation Describe --group {group}"
    )
    assert grants["list groups"] == grants["brokers' clock"] != ""
    assert "--operation Read" in grants["probe"]

    kafka41.allow("limited", "group", group, "DESCRIBE")
    kafka41.allow("limited", "topic", topic_name, "DESCRIBE")
    wait_for(
        "the right to bite",
        lambda: isinstance(read_groups(limited, [group])[0], GroupSnapshot),
        timeout=10,
    )
    ours, theirs = read_groups(limited, [group, other], probe=True)
    # DESCRIBE is enough for everything but the probe and the broker's settings.
    assert isinstance(ours, GroupSnapshot)
    assert ours.members[0].subscription is not None
    assert ours.topics
    assert ours.lag
    assert ours.probe is not None
    assert {each.error for each in ours.probe.answers} == {"GROUP_AUTHORIZATION_FAILED"}
    assert ours.group.coordinator is not None
    assert ours.group.coordinator.rebalanced_since_load is Tri.CANNOT_TELL
    assert "allow READ" in ours.group.coordinator.rebalanced_why
    assert [note for note in ours.notes if "DESCRIBE_CONFIGS" in note]
    assert isinstance(theirs, GroupFailure)
    assert theirs.kind == "authorization"
    assert "allow DESCRIBE on the group" in theirs.message
    described = examine(limited, group)
    assert available(described)["describe the group"] is Tri.YES
    assert available(described)["describe topics"] is Tri.YES
    assert available(described)["offsets and lag"] is Tri.YES
    assert available(described)["probe"] is Tri.NO

    kafka41.allow("limited", "group", group, "READ", "DESCRIBE_CONFIGS")
    kafka41.allow("limited", "topic", "__consumer_offsets", "READ", "DESCRIBE")
    kafka41.allow(
        "limited", "cluster", "kafka-cluster", "DESCRIBE_CONFIGS", "DESCRIBE", "ALTER_CONFIGS"
    )
    wait_for(
        "all rights",
        lambda: set(available(examine(limited, group)).values()) == {Tri.YES},
        timeout=10,
    )
    full = read_in_full(limited, group)
    assert full.group.coordinator is not None
    assert full.group.coordinator.rebalanced_since_load is Tri.YES


def test_doctor_without_a_group_reports_which_checks_it_did_not_try(kafka41: Broker) -> None:
    report = examine(config_of(kafka41))
    assert report.principal == "User:ANONYMOUS"
    rows = {row.source: row for row in report.rows}
    assert rows["describe the group"].available is Tri.CANNOT_TELL
    assert rows["describe the group"].why == "name a group to try it"
    assert rows["broker settings"].available is Tri.YES
    assert rows["list groups"].available is Tri.YES
    assert not any(row.grant for row in report.rows)


def test_doctor_reports_a_rejected_login(kafka41: Broker) -> None:
    config = config_of(kafka41, "PLAIN", sasl_password="wrong-s3cret")
    report = examine(config, "any")
    rows = {row.source: row for row in report.rows}
    assert rows.keys() == {"login", "client logs, config files"}
    assert rows["login"].available is Tri.NO
    assert "rejected the login with" in rows["login"].why
    assert not any("s3cret" in f"{row}" for row in report.rows)
    assert not any(row.grant for row in report.rows)
