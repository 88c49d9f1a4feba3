"""What hurt somebody in public threads, replayed as two versions of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.cli.app import run
from tests.manifests.folders import Files, write

LOCK = '{{"lockfileVersion": 3, "packages": {{"node_modules/{}": {{"version": "{}"}}}}}}'
GEMS = "GEM\n  remote: https://rubygems.org/\n  specs:\n    {} ({})\n"
LOGSTASH = """input {{
  kafka {{
    group_id => "pay"
    partition_assignment_strategy => "{}"
  }}
}}
"""
BOTH = """module x

require (
	github.com/IBM/sarama v{sarama} // indirect
	github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kafkareceiver v{receiver}
	github.com/twmb/franz-go v{franz} // indirect
)
"""
CSPROJ = '<Project><ItemGroup><PackageReference Include="{}" Version="{}"/></ItemGroup></Project>'
JAVA = "org.apache.kafka.clients.consumer."


def pom(artifact: str, version: str) -> Files:
    group = "org.apache.kafka"
    words = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    inner = f"<dependency>{words}<version>{version}</version></dependency>"
    return {"app/pom.xml": f"<project><dependencies>{inner}</dependencies></project>"}


def image(name: str) -> Files:
    return {"app/compose.yaml": f"services:\n  app:\n    image: {name}\n"}


def go(module: str) -> Files:
    return {"app/go.mod": f"module x\n\ngo 1.22\n\nrequire {module}\n"}


def node(name: str, version: str) -> Files:
    return {"app/package-lock.json": LOCK.format(name, version)}


def python(line: str) -> Files:
    return {"app/requirements.txt": f"{line}\n"}


def gems(name: str, version: str) -> Files:
    return {"app/Gemfile.lock": GEMS.format(name, version)}


def gradle(coordinates: str) -> Files:
    return {"app/build.gradle": f'implementation "{coordinates}"\n'}


def settings(folder: str = "app", **pairs: str) -> Files:
    keys = {key.replace("_", "."): value for key, value in pairs.items()}
    lines = {"group.id": "pay", "bootstrap.servers": "kafka:9092"} | keys
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    return {f"{folder}/consumer.properties": text}


def names(*classes: str) -> str:
    return ",".join(f"{JAVA}{each}Assignor" for each in classes)


CONFLUENT = {"enable_auto_offset_store": "false"}
EAGER = settings(partition_assignment_strategy=names("Range"))
MIXED = settings(partition_assignment_strategy=names("CooperativeSticky", "Range"))
OLD = settings(partition_assignment_strategy="range", **CONFLUENT)
NEW = settings(partition_assignment_strategy="cooperative-sticky", **CONFLUENT)
KIP848 = settings(group_protocol="consumer", **CONFLUENT)
REDPANDA = "redpanda-0.redpanda.svc.cluster.local:9092"
EVENT_HUBS = "shop.servicebus.windows.net:9093"
WORKER = """group.id=connect-s3
bootstrap.servers=kafka:9092
config.storage.topic=configs
offset.storage.topic=offsets
status.storage.topic=status
"""
SINK = """{"name": "s3", "config": {
  "connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "orders"}}
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: pay}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: pay
          env:
            - {name: SPRING_KAFKA_CONSUMER_GROUP_ID, value: pay}
"""
ONE_ID = """            - name: SPRING_KAFKA_CONSUMER_PROPERTIES_GROUP_INSTANCE_ID
              value: pay-1
"""
POD = "valueFrom: {fieldRef: {fieldPath: metadata.name}}"


def beside(before: Files, after: Files, more: Files) -> tuple[Files, Files]:
    """Return two versions, each with files that stay."""
    return before | more, after | more


CASES = {
    "01 librdkafka, straight to cooperative-sticky": (
        OLD, NEW, 3, ["INCONSISTENT_GROUP_PROTOCOL", "full cut-over"]),
    "02 librdkafka, the mixed list of the Java documentation": (
        OLD,
        settings(partition_assignment_strategy="cooperative-sticky,range", **CONFLUENT),
        3, ["does not start with eager and cooperative assignors in one list"]),
    "03 librdkafka without a stop": (
        *beside(OLD, NEW, python("confluent-kafka==2.12.0")),
        3, ["Or move online to KIP-848 (group.protocol=consumer, librdkafka 2.12 or later"]),
    "04 a service shares the group": (
        EAGER | settings("other", partition_assignment_strategy=names("Range")),
        settings(partition_assignment_strategy=names("CooperativeSticky", "Range"))
        | settings("other", partition_assignment_strategy=names("CooperativeSticky")),
        3, ["while one with [range] runs"]),
    "05 CAP assigns in its callback": (
        *beside(OLD, NEW, {"app/app.csproj": CSPROJ.format("DotNetCore.CAP.Kafka", "8.3.2")}),
        3, ["RB302", "must call incremental_assign()"]),
    "06 Confluent.Kafka unassigns in its callback": (
        *beside(OLD, NEW, {"app/app.csproj": CSPROJ.format("Confluent.Kafka", "1.8.2")}),
        3, ["RB302", "librdkafka 1.8.2"]),
    "07 karafka loops for ever": (
        *beside(OLD, NEW, gems("karafka-rdkafka", "0.15.0")),
        3, ["rebalances can repeat without end", "Upgrade librdkafka to 2.10.0"]),
    "09 the collector changes its library": (
        image("otel/opentelemetry-collector-contrib:0.136.0"),
        image("otel/opentelemetry-collector-contrib:0.137.0"),
        3, ["[range]", "[cooperative-sticky]", "group_rebalance_strategy: range"]),
    "09 Jaeger takes the collector's receiver, beside both libraries": (
        {"go.mod": BOTH.format(receiver="0.132.0", sarama="1.46.0", franz="1.18.1")},
        {"go.mod": BOTH.format(receiver="0.137.0", sarama="1.46.1", franz="1.19.5")},
        3, ["1 of 1 group starts differently: 1 rejected", "[cooperative-sticky] (default of Op"]),
    "11 a product on franz-go joins a group of range": (
        EAGER,
        EAGER
        | settings("hub")
        | {"hub/go.mod": go("github.com/twmb/franz-go v1.18.0")["app/go.mod"]},
        3, ["[cooperative-sticky]"]),
    "12 sarama to franz-go": (
        go("github.com/IBM/sarama v1.43.3"),
        go("github.com/twmb/franz-go v1.18.0"), 3, ["kgo.Balancers(kgo.RangeBalancer())"]),
    "14 processes of one group.instance.id": (
        {"app/pay.yaml": DEPLOYMENT},
        {"app/pay.yaml": DEPLOYMENT + ONE_ID}, 3, ["FENCED_INSTANCE_ID", "Give each its own"]),
    "14 processes whose group.instance.id is the name of a pod that does not come back": (
        {"app/pay.yaml": DEPLOYMENT},
        {"app/pay.yaml": DEPLOYMENT + ONE_ID.replace("value: pay-1", POD)},
        4, ["group.instance.id  not set (dynamic member) → the pod's name", "use a StatefulSet"]),
    "16 Java joins a group of kafkajs": (
        settings() | node("kafkajs", "2.2.4"),
        settings()
        | node("kafkajs", "2.2.4")
        | settings("java")
        | {"java/pom.xml": pom("kafka-clients", "3.9.0")["app/pom.xml"]},
        3, ["[RoundRobinAssigner]"]),
    "18 kafkajs to Confluent's client": (
        node("kafkajs", "2.2.4"),
        node("@confluentinc/kafka-javascript", "1.2.0"),
        3, ["two roll-outs, the first with kafkajs", "[roundrobin, RoundRobinAssigner]"]),
    "19 ruby-kafka renames its assignor": (
        gems("ruby-kafka", "0.7.10"),
        gems("ruby-kafka", "1.0.0"), 3, ["[standard]", "[roundrobin]"]),
    "20 Java joins a group of kafka-node": (
        settings() | node("kafka-node", "5.0.0"),
        settings()
        | node("kafka-node", "5.0.0")
        | settings("java")
        | {"java/pom.xml": pom("kafka-clients", "2.8.2")["app/pom.xml"]}, 3, ["[range]"]),
    "21 a consumer takes the id of a Streams application": (
        {"app/application.yaml": "spring.kafka.streams.application-id: pay\n"},
        {"app/application.yaml": "spring.kafka.streams.application-id: pay\n"}
        | settings("other", partition_assignment_strategy=names("Range")),
        3, ["while one with [stream] runs"]),
    "22 a sink connector takes the group of its workers": (
        {"app/worker.properties": WORKER},
        {"app/worker.properties": WORKER, "app/s3.json": SINK},
        3, ["connect-s3", "Connect workers and consumers cannot share a group"]),
    "23 Logstash takes one assignor": (
        image("logstash:8.10.0") | {"app/pipe.conf": LOGSTASH.format("range")},
        image("logstash:8.10.0") | {"app/pipe.conf": LOGSTASH.format("cooperative_sticky")},
        3, ["cut-over", "takes one name, not a list"]),
    "24 Reactor Kafka ends at a rebalance": (
        *beside(EAGER, MIXED, gradle("io.projectreactor.kafka:reactor-kafka:1.3.12")),
        0, ["RebalanceInProgressException", "use 1.3.16 or later"]),
    "25 fs2-kafka leaves partitions without a reader": (
        *beside(EAGER, MIXED, gradle("com.github.fd4s:fs2-kafka_2.13:3.5.1")),
        0, ["without a reader", "no commit is made while partitions move"]),
    "26 Pekko drops buffered records": (
        *beside(EAGER, MIXED, gradle("org.apache.pekko:pekko-connectors-kafka_2.13:1.1.0")),
        0, ["loses buffered records", "use 1.2.0 or later"]),
    "29 a framework sets session.timeout.ms beside KIP-848": (
        EAGER,
        settings(group_protocol="consumer", session_timeout_ms="30000"),
        3, ["session.timeout.ms", "does not start"]),
    "30 KIP-848 on brokers that are not known": (
        EAGER | pom("kafka-clients", "4.1.0"),
        settings(group_protocol="consumer") | pom("kafka-clients", "4.1.0"), 4, ["RB401"]),
    "31 node-rdkafka stalls under KIP-848": (
        *beside(OLD, KIP848, node("node-rdkafka", "3.6.0")),
        4, ["stalls without an error", "errno 113", "Upgrade librdkafka to 2.15.0"]),
    "32 @platformatic/kafka does not say what is revoked": (
        settings() | node("@platformatic/kafka", "2.8.0"),
        settings(group_protocol="consumer") | node("@platformatic/kafka", "2.8.0"),
        4, ["loses partitions gets no event", "read twice"]),
    "33 Arroyo under KIP-848": (
        *beside(OLD, KIP848, python("sentry-arroyo==2.20.0")),
        4, ["must call incremental_assign()", "STALE_MEMBER_EPOCH"]),
    "34 KIP-848 on Redpanda": (
        settings(bootstrap_servers=REDPANDA, **CONFLUENT),
        settings(bootstrap_servers=REDPANDA, group_protocol="consumer", **CONFLUENT),
        3, ["the brokers are Redpanda's, without KIP-848 groups"]),
    "35 static members on Redpanda": (
        settings(bootstrap_servers=REDPANDA),
        settings(bootstrap_servers=REDPANDA, group_instance_id="pay-1"),
        4, ["static members need 22.2.1 or later"]),
    "36 a client upgrade on Event Hubs": (
        settings(bootstrap_servers=EVENT_HUBS) | go("github.com/twmb/franz-go v1.20.5"),
        settings(bootstrap_servers=EVENT_HUBS) | go("github.com/twmb/franz-go v1.21.0"),
        0, ["1.21.1 does", "groups rebalance again and again", "never Empty"]),
    "39 Spring Cloud Stream relies on range": (
        EAGER | gradle("org.springframework.cloud:spring-cloud-stream-binder-kafka:3.2.4"),
        MIXED | gradle("org.springframework.cloud:spring-cloud-stream-binder-kafka:3.2.4"),
        0, ["RB115", "rely on range keeping them together"]),
    "42 tools show the group as Dead": (
        *beside(EAGER, settings(group_protocol="consumer"), pom("kafka-clients", "4.2.1")),
        4, ["Others show it as Dead"]),
    "43 the groups of a sink get other names": (
        EAGER,
        settings(group_id="pay-2", partition_assignment_strategy=names("Range")),
        4, ["no committed offsets"]),
    "44 aiokafka has no cooperative assignor": (
        settings(partition_assignment_strategy="range") | python("aiokafka==0.12.0"),
        settings(partition_assignment_strategy="cooperative-sticky") | python("aiokafka==0.12.0"),
        3, ["no cooperative assignor"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_upgrade_of_the_field_is_found(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, code, said = CASES[case]
    old, new = write(tmp_path / "old", before), write(tmp_path / "new", after)
    assert run(["check", str(old), str(new)]) == code
    out = capsys.readouterr().out
    assert [words for words in said if words not in out] == []
    # A move that cannot begin is no way out.
    assert not ("without KIP-848 groups" in out and "instead       to KIP-848" in out)
