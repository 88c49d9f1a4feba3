"""The harness itself: what it says about brokers and members is true."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka import jars, security
from tests.kafka.broker import Broker
from tests.kafka.members import SOFTWARE, wait_assigned
from tests.kafka.processes import wait_for


@pytest.mark.parametrize("software", SOFTWARE)
def test_two_members_share_a_topic(software, kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 6)
    first = members.start(software, kafka41, "one", group_id, topics=[topic])
    wait_assigned([first], 6)
    second = members.start(software, kafka41, "two", group_id, topics=[topic])
    wait_assigned([first, second], 6)
    kafka41.wait_stable(group_id, 2)
    described = kafka41.admin().describe_consumer_groups([group_id])[group_id].result(10)
    by_client = {
        member.client_id: {
            (part.topic, part.partition) for part in member.assignment.topic_partitions
        }
        for member in described.members
    }
    assert by_client == {"one": first.owned, "two": second.owned}
    if software != "java-2.3.1":
        told = {member.client_id: member.member_id for member in described.members}
        assert told == {"one": first.member_id, "two": second.member_id}
    first.stop()
    wait_assigned([second], 6)
    assert first.said("closed")


def test_cooperative_members_keep_what_they_own(kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 6)
    options = {"topics": [topic], "assignors": ["cooperative-sticky"]}
    first = members.start("java-3.9.1", kafka41, "one", group_id, **options)
    wait_assigned([first], 6)
    second = members.start("java-3.9.1", kafka41, "two", group_id, **options)
    wait_assigned([first, second], 6)
    revoked = set().union(*(event.partitions for event in first.said("revoked")))
    assert len(revoked) == 3
    assert revoked == second.owned


def test_a_refused_member_says_so(kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 2)
    first = members.start(
        "java-3.9.1", kafka41, "one", group_id, topics=[topic], assignors=["range"]
    )
    wait_assigned([first], 2)
    options = {"topics": [topic], "assignors": ["cooperative-sticky"]}
    second = members.start("java-3.9.1", kafka41, "two", group_id, **options)
    second.wait_for("error")
    assert second.error is not None
    assert second.error.startswith("InconsistentGroupProtocolException")


def test_java_log_is_what_a_container_gives(kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 1)
    member = members.start("java-2.8.2", kafka41, "logged", group_id, own=True, topics=[topic])
    wait_assigned([member], 1)
    log = member.log()
    assert "ConsumerConfig values:" in log
    assert "Kafka version: 2.8.2" in log
    assert f"[Consumer clientId=logged, groupId={group_id}] Successfully joined group" in log


def test_request_log_is_switched_without_a_restart(kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 1)
    kafka41.log_requests(True)
    try:
        member = members.start("kafka-python", kafka41, "seen", group_id, topics=[topic])
        wait_assigned([member], 1)
    finally:
        kafka41.log_requests(False)
    lines = [line for line in kafka41.request_log_path.read_text().splitlines() if group_id in line]
    body = next(line for line in lines if '"requestApiKeyName":"JOIN_GROUP"' in line)
    request = json.loads(body[body.index("{") : body.rindex("}") + 1])
    names = [entry["name"] for entry in request["request"]["protocols"]]
    assert names == ["range", "roundrobin"]
    size = kafka41.request_log_path.stat().st_size
    kafka41.wait_stable(group_id, 1)
    assert kafka41.request_log_path.stat().st_size == size


def test_coordinator_log_names_the_group(kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 1)
    assert group_id not in kafka41.coordinator_log()
    member = members.start("kafka-python", kafka41, "one", group_id, topics=[topic])
    wait_assigned([member], 1)
    assert group_id in kafka41.coordinator_log()


@pytest.mark.usefixtures("without_rights")
@pytest.mark.parametrize("mechanism", [*security.SCRAM_MECHANISMS, "PLAIN", "OAUTHBEARER", "SSL"])
def test_acls_bite_on_the_secured_listeners(mechanism, kafka41, topic_name):
    topic = kafka41.create_topic(topic_name, 1)

    def topics_seen(user: str) -> set[str]:
        bootstrap = kafka41.bootstrap_tls if mechanism == "SSL" else kafka41.bootstrap_sasl
        client = AdminClient(
            security.librdkafka_properties(
                kafka41.certificates, bootstrap, mechanism=mechanism, user=user
            )
        )
        client.poll(0.2)  # librdkafka makes its unsigned token here
        return set(client.list_topics(timeout=10).topics)

    assert topic in topics_seen("admin")
    assert topic not in topics_seen("limited")
    kafka41.allow("limited", "topic", topic, "DESCRIBE")
    assert topic in topics_seen("limited")


def test_a_wrong_password_and_a_strange_ca_are_refused(kafka41):
    good = security.librdkafka_properties(
        kafka41.certificates, kafka41.bootstrap_sasl, mechanism="PLAIN", user="admin"
    )
    strange = good | {"ssl.ca.location": str(kafka41.certificates.untrusted_ca)}
    for properties in (good | {"sasl.password": "wrong"}, strange):
        with pytest.raises(KafkaException):
            AdminClient({**properties, "log_level": 0}).list_topics(timeout=1.5)


def test_a_restarted_broker_keeps_its_ports_and_groups(members, group_id):
    with Broker(jars.EARLY, secure=False) as broker:
        topic = broker.create_topic("kept", 4)
        member = members.start("java-3.9.1", broker, "one", group_id, topics=[topic])
        wait_assigned([member], 4)
        member_id, bootstrap = member.member_id, broker.bootstrap
        broker.restart()
        assert broker.bootstrap == bootstrap
        broker.wait_stable(group_id, 1)
        described = broker.admin().describe_consumer_groups([group_id])[group_id].result(10)
        assert [each.member_id for each in described.members] == [member_id]
        broker.kill()
        assert not broker.process.alive
        broker.start()
        broker.wait_stable(group_id, 1)
        member.kill()


def test_kip_848_member(kafka41, members, group_id, topic_name):
    topic = kafka41.create_topic(topic_name, 4)
    java = members.start("java-4.1.1", kafka41, "j", group_id, topics=[topic], protocol="consumer")
    wait_assigned([java], 4)
    other = members.start(
        "confluent-kafka", kafka41, "c", group_id, topics=[topic], protocol="consumer"
    )
    wait_assigned([java, other], 4)
    described = kafka41.admin().describe_consumer_groups([group_id])[group_id].result(10)
    assert described.type.name == "CONSUMER"
    assert {each.member_id for each in described.members} == {java.member_id, other.member_id}


def test_scala_coordinator_serves_too(kafka39, members, group_id, topic_name):
    topic = kafka39.create_topic(topic_name, 4)
    member = members.start("java-2.3.1", kafka39, "old", group_id, topics=[topic])
    wait_assigned([member], 4)
    kafka39.wait_stable(group_id, 1)
    assert kafka39.is_scala_coordinator


def test_a_broker_does_not_outlive_a_killed_test_run():
    script = (
        "import os, signal\n"
        "from tests.kafka.broker import Broker\n"
        "broker = Broker(secure=False)\n"
        "broker.start()\n"
        "print(broker.process.pid, broker.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=jars.ROOT, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, folder = done.stdout.split()
    try:
        wait_for("the broker to end", lambda: not _runs_broker(int(pid)), timeout=15)
    finally:
        shutil.rmtree(folder)


def _runs_broker(pid: int) -> bool:
    listed = subprocess.run(
        ["ps", "-o", "stat=,args=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return "Launch" in listed and not listed.startswith("Z")


def test_the_wrapper_runs_the_pinned_maven_only(tmp_path):
    pinned = (jars.ROOT / ".mvn/wrapper/maven-wrapper.properties").read_text()
    version = dict(line.split("=", 1) for line in pinned.splitlines())["version"]
    folder = tmp_path / "repository/org/apache/maven/apache-maven" / version
    fake = folder / f"apache-maven-{version}-bin.zip"
    fake.parent.mkdir(parents=True)
    fake.write_bytes(b"not Maven")
    home = tmp_path / "home"
    environment = {
        **os.environ,
        "MVNW_REPOURL": (tmp_path / "repository").as_uri(),
        "MAVEN_USER_HOME": str(home),
    }
    done = subprocess.run(
        [str(jars.ROOT / "mvnw"), "-v"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is not the pinned file" in done.stderr
    assert list((home / "wrapper/dists").iterdir()) == []
