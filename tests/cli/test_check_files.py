"""`rebal check` on two folders: what a change of files comes to, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rebal.cli.app import run
from tests.manifests.folders import Files, write

JAVA = "org.apache.kafka.clients.consumer."
CONSUMER = "group.id=pay\nbootstrap.servers=kafka:9092\n"
SPRING = "spring.kafka.consumer:\n  group-id: pay\n  properties:\n    {}: {}{}Assignor\n"
REMOTE = CONSUMER + "group.protocol=consumer\ngroup.remote.assignor={}\n"
TEMPLATE = "kafka: {{ .Values.kafka }}\n{{ if }}"
COMPOSE = "services:\n  a:\n    environment:\n      - KAFKA_ASSIGNMENT_STRATEGY={}\n"
WORKER = (
    "group.id=kafka\nconfig.storage.topic=c\noffset.storage.topic=o\nstatus.storage.topic=s\n"
    "consumer.partition.assignment.strategy={}\n"
)
SINK = (
    "name=s3\nconnector.class=io.S3SinkConnector\ntopics=orders\n"
    "consumer.override.group.protocol={}\n"
)
RECEIVER = "receivers:\n  kafka:\n    group_id: otel\n    group_rebalance_strategies: [{}]\n"
CHART = {"a/templates/a.yaml": "name: kafka-{{ .Name }}\nstrategy: Recreate\n{{ if }}\n"}
BOOT = """id 'org.springframework.boot' version '{}'
api 'org.apache.kafka:kafka-streams'
api 'org.apache.kafka:kafka-clients'
"""
STREAMS = (
    "<project><dependencies><dependency><groupId>org.apache.kafka</groupId>"
    "<artifactId>kafka-streams</artifactId><version>{}</version></dependency></dependencies>"
    "</project>"
)
APPLICATION = {"pay/application.yaml": "spring.kafka.streams.application-id: pay\n"}
CARGO = {"rust/Cargo.lock": '[[package]]\nname = "rdkafka"\nversion = "0.36.2"\n'}
SARAMA, FRANZ = (
    f"require github.com/{one}\n" for one in ("IBM/sarama v1.43.3", "twmb/franz-go v1.18.0")
)
FORK = "require github.com/IBM/sarama v1.43.3\nreplace github.com/IBM/sarama => ../sarama\n"
QUARKUS = CONSUMER + "%{{prod,stage}}.partition.assignment.strategy={}\n"
EXPRESSION = "spring.kafka.consumer.group-id: pay\n---\n" + (
    "spring.config.activate.on-profile: prod | stage\n" + SPRING
)
KUSTOMIZE = "images:\n- name: otel/opentelemetry-collector-contrib\n" + (
    "  newName: {}\n  newTag: 0.154.0\n"
)
YARN = {"yarn.lock": '[[package]]\nname = "x"\n\n"kafkajs@npm:^2.0.0":\n  version: 2.2.4\n'}
INPUTS = """input {{
  kafka {{
    group_id => "pay"
    partition_assignment_strategy => "{}"
  }}
  kafka {{
    group_id => "bill"
    partition_assignment_strategy => "range"
  }}
}}
"""
TWINS = tuple(
    f'input {{\n  kafka {{\n    group_id => "pay"\n    client_id => "{ms}"\n'
    f"    session_timeout_ms => {ms}\n  }}\n}}\n"
    for ms in (10_000, 30_000)
)
HOCON = """pay {{
  kafka.group.id = "pay"
  kafka.partition.assignment.strategy = {}
}}
bill {{
  kafka.group.id = "bill"
  kafka.partition.assignment.strategy = range
}}
"""
BESIDE = """services:
  connect:
    environment:
      CONNECT_GROUP_ID: workers
      CONNECT_CONFIG_STORAGE_TOPIC: c
  pay:
    environment:
      KAFKA_GROUP_ID: {}
"""
BINDING = """spring.cloud.stream:
  bindings.orders-in-0: {{destination: orders, group: {}}}
  kafka.binder: {{consumer-properties: {{partition.assignment.strategy: {}}}}}
"""
CHANNEL = "mp.messaging.incoming.orders.group.id=pay\n"
VECTOR = (
    "sources.k: {{type: kafka, group_id: pay, bootstrap_servers: k, librdkafka_options: {{{}}}}}"
)
VECTOR_TOML = """[sources.k]
type = "kafka"
group_id = "pay"
bootstrap_servers = "k"
librdkafka_options = {{"partition.assignment.strategy" = "{}"}}
"""
STRIMZI = """apiVersion: kafka.strimzi.io/v1
kind: KafkaConnector
metadata: {{name: s3}}
spec:
  class: io.S3SinkConnector
  config: {{topics: a, consumer.override.partition.assignment.strategy: {}}}
"""
PROFILE = (
    "kind: ConfigMap\napiVersion: v1\nmetadata: {{name: a}}\ndata:\n  application.yaml: |\n"
    "    spring.kafka.consumer: {{group-id: pay, properties.group.protocol: classic}}\n"
    "  application-prod.properties: spring.kafka.consumer.partition.assignment.strategy={}\n"
)
MAPPED = (
    "kind: Deployment\napiVersion: a\nmetadata: {name: pay}\nspec: {template: {spec: {"
    "containers: [{name: a, envFrom: [{configMapRef: {name: c}}]}]}}}\n"
)
MAP = (
    "kind: ConfigMap\napiVersion: v1\nmetadata: {{name: c}}\ndata:\n  KAFKA_GROUP_ID: {}\n"
    "  KAFKA_PARTITION_ASSIGNMENT_STRATEGY: {}\n"
)
POD = "containers: [{{name: a, env: [{{name: KAFKA_GROUP_ID, value: {}}}]}}]"
KNATIVE = "kind: Service\napiVersion: a\nspec: {{template: {{spec: {{" + POD + "}}}}}}\n"
CRON = (
    "kind: CronJob\napiVersion: a\nspec: {{jobTemplate: {{spec: {{template: {{spec: {{"
    + POD.replace("env: [{{name: KAFKA_GROUP_ID, value: {}}}]", "args: [--kafka-group-id, '{}']")
    + "}}}}}}}}}}\n"
)
LISTED = """services:
  pay:
    environment:
      - KAFKA_USER
      - KAFKA_GROUP_ID=pay
      - KAFKA_PARTITION_ASSIGNMENT_STRATEGY={}
"""
VALUES = (
    "env:\n- name: KAFKA_GROUP_ID\n  value: pay\n- name: KAFKA_PASSWORD\n  valueFrom: {{a: b}}\n"
    "- name: KAFKA_PARTITION_ASSIGNMENT_STRATEGY\n  value: {}\n"
)
VARIABLES = "KAFKA_GROUP_ID=pay\nKAFKA_PARTITION_ASSIGNMENT_STRATEGY={}\n"
NOT_PLAIN = "the version of logstash is not a plain one (${V})."
SILENT = "no group starts differently"


def assignors(names: str) -> Files:
    return {"c.properties": f"group.id=pay\npartition.assignment.strategy={names}\n"}


def line(text: str) -> Files:
    return {"c.properties": f"group.id=kafka\n{text}\n"}


def collector(version: str) -> Files:
    name = "otel/opentelemetry-collector-contrib"
    return {"x/compose.yaml": f"services:\n  a:\n    image: {name}:{version}\n"}


def spring(name: str, file: str = "pay/application.yaml") -> Files:
    return {file: SPRING.format("partition.assignment.strategy", JAVA, name)}


BILL = "spring.kafka.consumer.group-id: bill\n"
PROD = {"pay/application-prod.yaml": BILL}


def node(name: str, version: str) -> Files:
    return {"package.json": json.dumps({"dependencies": {name: version}})}


def pom(version: str) -> Files:
    kafka = "<groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>"
    one = f"<dependency>{kafka}<version>{version}</version></dependency>"
    return {
        "pom.xml": f"<project><dependencies>{one}</dependencies></project>",
        "producer.properties": "bootstrap.servers=k:9092\nacks=all\n",
    }


def catalog(version: str) -> Files:
    text = f'[libraries]\nkafka-clients = "org.apache.kafka:kafka-clients:{version}"\n'
    return {"gradle/libs.versions.toml": text, "consumer.properties": CONSUMER}


def both(file: str, text: str, *values: str) -> tuple[Files, Files]:
    one, two = ({file: text.format(value)} for value in values or ("range", "sticky"))
    return one, two


def services(module: str) -> Files:
    return {
        "pay/conf/c.properties": CONSUMER,
        "bill/c.properties": CONSUMER.replace("pay", "bill"),
        "bill/requirements.txt": "aiokafka==0.12.0\n",
        "pay/go.mod": module,
        **collector("0.136.0"),
    }


# Two versions, the exit code, and what the screen says, or with `not `, what it does not say.
CASES: dict[str, tuple[tuple[Files, Files], int, list[str]]] = {
    "a chart of another version": (
        tuple(
            CHART | {"a/Chart.yaml": f"version: {n}\n", "a/values.yaml": f"tag: {n}\n"}
            for n in "12"
        ), 0, [SILENT]),
    "a library of another language below": (
        (
            {"requirements.txt": "confluent-kafka==2.10.0\n"} | CARGO,
            {"requirements.txt": "aiokafka==0.11.0\n"} | CARGO,
        ), 4, ["the groups of .\n", "not the groups of rust"]),
    "a folder that moved and changed": (
        ({"pay/go.mod": SARAMA}, {"a/pay/go.mod": FRANZ}), 3, ["[range]"]),
    "an image of a folder above": (
        tuple(
            {f"k8s/{name}": text for name, text in collector("0.129.0").items()}
            | {".env": f"IMAGE=otel/opentelemetry-collector-contrib:{version}\n"}
            for version in ("0.129.0", "0.139.0")
        ), 3, ["REJECTED      the groups of .\n"]),
    "a translation": (
        both("ui/locale/da.json", '{{"kafka": {{"group-id": "{}"}}}}', "Gruppe", "Gruppen"),
        0, [SILENT]),
    "two folders that moved": (
        (
            {"pay/go.mod": SARAMA, "bill/go.mod": FRANZ},
            {"a/pay/go.mod": SARAMA, "a/bill/go.mod": FRANZ},
        ), 0, [SILENT]),
    "a module of Go below another": (
        tuple({"go.mod": text, "collector/go.mod": text} for text in (SARAMA, FRANZ)),
        3, ["the groups of .\n", "the groups of collector\n"]),
    "files that are not about Kafka": (
        ({}, {"tsconfig.json": "{ // a comment", "kafka.json": '{"kafka": '}),
        0, ["kafka.json: not valid JSON", "not tsconfig"]),
    "variables": (
        both("app/.env", VARIABLES, "range", "cooperative-sticky"),
        3, ["[range] → [cooperative-sticky]   app/.env:2"]),
    "one of two inputs of Logstash": (
        both("kafka.conf", INPUTS, "range", "cooperative_sticky"), 3, ["REJECTED      pay\n"]),
    "two inputs of Logstash that change places": (
        tuple({"kafka.conf": one + two} for one, two in (TWINS, TWINS[::-1])), 0, [SILENT]),
    "one of two consumers in HOCON": (
        both("application.conf", HOCON, "range", "cooperative-sticky"),
        3, ["REJECTED      pay\n"]),
    "a list of variables in Compose": (
        both("compose.yaml", LISTED, "range", "cooperative-sticky"), 3, ["REJECTED      pay\n"]),
    "a list of variables in Helm's values": (
        both("values.yaml", VALUES, "range", "cooperative-sticky"), 3, ["REJECTED      pay\n"]),
    "a consumer beside a Connect worker": (
        both("compose.yaml", BESIDE, "pay", "bill"), 4, ["group.id  pay → bill"]),
    "a Connect worker beside a consumer": (
        both("compose.yaml", BESIDE.replace("{}", "pay").replace("workers", "{}"), "one", "two"),
        4, ["group.id  one → two"]),
    "the group of a binding": (
        both(
            *("application.yml", BINDING.replace("y: {}", f"y: {JAVA}RangeAssignor")),
            *("pay", "bill"),
        ),
        4, ["group.id  pay → bill"]),
    "the list of a binder": (
        both("application.yml", BINDING.replace("{}", "pay", 1), "range", "cooperative-sticky"),
        3, ["REJECTED      pay\n"]),
    "a list of Quarkus for all channels": (
        both(
            *("application.properties", "kafka.partition.assignment.strategy={}\n" + CHANNEL),
            *("range", "cooperative-sticky"),
        ), 3, ["REJECTED      pay\n"]),
    "brokers of Quarkus for all channels": (
        both("application.properties", "kafka.bootstrap.servers={}\n" + CHANNEL, "a:1", "b:1"),
        4, ["bootstrap.servers  a:1 → b:1"]),
    "options that come": (
        both("vector.yaml", VECTOR, "", "partition.assignment.strategy: cooperative-sticky"),
        4, ["pay\n"]),
    "Vector in TOML": (
        both("vector.toml", VECTOR_TOML, "range", "roundrobin"), 3, ["REJECTED      pay\n"]),
    "a connector of Strimzi": (
        both("c.yaml", STRIMZI, f"{JAVA}RangeAssignor", f"{JAVA}StickyAssignor"),
        3, ["REJECTED      connect-s3\n"]),
    "a ConfigMap in a file of its own": (
        tuple(
            {"a.yaml": MAPPED, "c.yaml": MAP.format("pay", names)}
            for names in ("range", "roundrobin,range")
        ), 0, ["1 of 1 group starts differently: 1 safe"]),
    "ConfigMaps of one name in two folders": (
        tuple(
            {"dev/a.yaml": MAPPED, "dev/c.yaml": MAP.format("dev", name)}
            | {"prod/a.yaml": MAPPED, "prod/c.yaml": MAP.format("prod", "range")}
            for name in ("range", "sticky")
        ), 3, ["1 of 2 groups starts differently: 1 rejected", "REJECTED      dev\n"]),
    "a pod of another kind": (both("a.yaml", KNATIVE, "a", "b"), 4, ["group.id  a → b"]),
    "a value that is an argument of its own": (
        both("a.yaml", CRON, "a", "b"), 4, ["group.id  a → b"]),
    "a list from a placeholder": ((assignors("range"), assignors("${NAMES}")), 4, []),
    "another default of a placeholder": ((assignors("${A:range}"), assignors("${A:a}")), 4, []),
    "the value of a placeholder in another file": (
        tuple(assignors("${NAMES}") | {"run/x.env": f"NAMES={n}\n"} for n in ("range", "sticky")),
        4, []),
    "another setting beside a placeholder": (
        tuple({"c.properties": f"group.id=${{G}}\ngroup.protocol=classic\na={n}\n"} for n in "12"),
        0, ["sets group.id from a placeholder"]),
    "values of a Helm template": (
        tuple({"a/templates/c.yaml": TEMPLATE, "a/values.yaml": f"a: {n}\n"} for n in "12"), 4, []),
    "a version that is not written": ((collector("0.136.0"), collector("latest")), 4, []),
    "a version that nobody looked up": ((collector("0.136.0"), collector("0.999.0")), 4, []),
    "a variable in a version": (
        both("Dockerfile", "ARG V={}\nFROM logstash:${{V}}\n", "7.17.0", "8.15.0"), 4, [NOT_PLAIN]),
    "a line beside a variable in a version": (
        both("Dockerfile", "FROM logstash:${{V}}\nRUN echo {}\n", "1", "2"), 0, [NOT_PLAIN]),
    "a list in Compose": (both("compose.yaml", COMPOSE), 4, []),
    "a program's own word": (both("app.yaml", "kafka:\n  rebalanceStrategy: {}\n"), 4, []),
    "a program's own list": (both("a.yaml", "kafka:\n  assignors:\n  - range\n  - {}\n"), 4, []),
    "a list in Kubernetes": (both("d.yaml", "- name: KAFKA_ASSIGNOR\n  value: {}\n"), 4, []),
    "Telegraf": (both("t.toml", "[[inputs.kafka_consumer]]\nbalance_strategy = '{}'\n"), 4, []),
    "the group of a file that is not read": (
        both("vector.toml", "type = 'kafka'\ngroup_id = '{}'\n", "a", "b"), 4, []),
    "a variable in Terraform": (
        both("kafka.tf", "name = 'KAFKA_ASSIGNMENT_STRATEGY'\nvalue = '{}'\n"), 4, []),
    "a label of a metric": (
        both("rule.yaml", "expr: kafka_consumergroup_lag{{consumergroup='{}'}}\n"), 0, [SILENT]),
    "the group of a publication": (
        both("build.gradle", "groupId = '{}.kafka'\n", "a", "b"), 0, [SILENT]),
    "a group of security": (
        both("a.tf", "kafka_security_group_id = '{}'\n", "a", "b"), 0, [SILENT]),
    "the helpers of a chart": (
        both("a/templates/_kafka.tpl", "KAFKA_ASSIGNMENT_STRATEGY: {}\n"), 4, []),
    "a setting in XML": (
        both("kafka.xml", "<partition_assignment_strategy>{}</partition_assignment_strategy>\n"),
        4, []),
    "a strategy below its own key": (
        both("b.yml", "type: kafka\nrebalance:\n  strategy: {}\n"), 4, []),
    "the list of a worker's sinks": (both("worker.properties", WORKER), 4, []),
    "KIP-848 in a sink connector": (
        both("s3.properties", SINK, "classic", "consumer"),
        4, ["group.protocol  classic → consumer   s3.properties:4"]),
    "a file that is no YAML any more": (
        both("c.yaml", "group.id: pay\n{}", "", "  kafka: [\n"), 4, []),
    "an overlay that names no group": (
        (
            {"a.json": "{}"},
            {"a.json": "{}", "b.json": '{"partition.assignment.strategy": "range"}'},
        ), 4, ["no file names its group"]),
    "a range of versions": ((node("kafkajs", "^2.2.4"), node("kafkajs", "^2.3.0")), 0, [SILENT]),
    "a range of versions of another library": (
        (node("kafkajs", "^2.2.4"), node("@confluentinc/kafka-javascript", "^1.0.0")), 3, []),
    "an empty name in a list of classes": (
        (assignors(f"{JAVA}RangeAssignor"), assignors(f"{JAVA}RangeAssignor,")),
        3, ["does not start with it"]),
    "the assignor that a member asks the brokers for": (
        both("kafka.properties", REMOTE, "uniform", "rangee"), 4, []),
    "a class instead of a name": ((assignors("range"), assignors(f"{JAVA}RangeAssignor")), 0, []),
    **{
        f"a line that sets nothing: {one}": ((line(one), line(two)), 0, [SILENT])
        for one, two in (
            ("# partition.assignment.strategy=range", "# partition.assignment.strategy=sticky"),
            ("x=1 # assignor=range", "x=1 # assignor=sticky"),
            ("x=the assignor is range", "x=the assignor differs"),
            ('{"assignor": "range", "topic": "a"}', '{"assignor": "range", "topic": "b"}'),
        )
    },
    "a lock file that comes": (
        (node("kafkajs", "^2.0.0"), node("kafkajs", "^2.0.0") | YARN),
        0, [f"{SILENT}: 1 group declared"]),
    # It may be a producer's, or the project's from which modules inherit it.
    "a version alone": ((pom("3.9.0"), pom("4.1.0")), 0, [f"{SILENT}: 1 group declared"]),
    "a version with another list": (
        (pom("2.8.2"), pom("4.1.0")), 0, ["1 of 1 group", "not where no code sets the list"]),
    "another library with the same list": (
        both("requirements.txt", "{}\n", "kafka-python==2.0.2", "confluent-kafka==2.3.0"),
        0, ["library  kafka-python 2.0.2 → librdkafka 2.3.0", "where no code sets the list"]),
    "a library of a folder and those below": (
        (services(SARAMA), services(FRANZ)),
        3,
        [
            "1 of 3 groups starts differently: 1 rejected",
            "REJECTED      pay\n",
            "library  sarama v1.43.3 → franz-go v1.18.0   pay/go.mod:1",
        ]),
    "a program of Kafka Streams beside a client": (
        tuple(
            APPLICATION | {"pay/build.gradle": BOOT.format(v)} for v in ("2.1.18.RELEASE", "3.3.5")
        ), 3, ["REJECTED      pay\n", "library  streams 2.0.1 → streams 3.7.1"]),
    "two libraries of one folder": (
        (
            {"c.properties": CONSUMER, "requirements.txt": "confluent-kafka==2.3.0\n"},
            {
                "c.properties": CONSUMER,
                "requirements.txt": "confluent-kafka==2.3.0\naiokafka==0.12.0\n",
            },
        ), 4, ["3 of 3 groups start", "library  librdkafka 2.3.0 → not known"]),
    "the configuration of a product beside its image": (
        tuple(
            collector("0.155.0") | {"x/otel.yaml": RECEIVER.format(name)}
            for name in ("range", "cooperative-sticky")
        ), 3, ["x/otel.yaml:4", "group_rebalance_strategies: cooperative-sticky, range"]),
    "profiles of Quarkus in braces": (
        both("application.properties", QUARKUS, "range", "cooperative-sticky"),
        3, ["REJECTED      pay\n"]),
    "an expression of Spring's profiles": (
        tuple(
            {"application.yaml": EXPRESSION.format("partition.assignment.strategy", JAVA, one)}
            for one in ("Range", "CooperativeSticky")
        ), 3, ["REJECTED      pay (profile prod | stage)", "not ?java"]),
    "another image that Kustomize puts in place": (
        both(
            *("kustomization.yaml", KUSTOMIZE),
            *("otel/opentelemetry-collector-contrib", "telegraf"),
        ), 3, ["OpenTelemetry Collector 0.154.0 → Telegraf 0.154.0"]),
    "another image without a tag that Kustomize puts in place": (
        both("kustomization.yaml", KUSTOMIZE.partition("  newTag")[0], "a/b", "telegraf"),
        4, ["telegraf"]),
    "a module of Go that is replaced in another version": (
        tuple(
            {"go.mod": f"{SARAMA}replace github.com/IBM/sarama v1.{n} => github.com/twmb/franz-go "
             "v1.18.0\n"}
            for n in ("0.1", "43.3")
        ), 3, ["sarama v1.43.3 → franz-go v1.18.0"]),
    "a fork instead of a version": (({"go.mod": SARAMA}, {"go.mod": FORK}), 4, ["../sarama"]),
    "an alias instead of a version": (
        (node("kafkajs", "2.2.4"), node("kafkajs", "npm:@confluentinc/kafka-javascript@1.0.0")),
        4, ["npm:@confluentinc"]),
    "another group with an overlay of Compose": (
        (
            {"compose.yaml": BESIDE.format("pay")},
            {"compose.yaml": BESIDE.format("pay"), "compose.prod.yaml": BESIDE.format("bill")},
        ), 4, ["group.id  pay → bill"]),
    "values of another environment": (
        ({"values.yaml": VALUES.format("range")}, {
            "values.yaml": VALUES.format("range"),
            "values-prod.yaml": VALUES.format("sticky"),
        }), 3, ["pay (profile prod)"]),
    "Streams across 2.4, to a version that takes no upgrade.from of 2.3": (
        both("pom.xml", STREAMS, "2.3.1", "4.1.1"), 3, ["and a version up to 3.9"]),
    **{
        f"what a profile of Spring sets: {key}": (
            tuple(
                spring("Range")
                | {"pay/application-prod.yaml": f"spring.kafka.consumer.{key}: {value}\n"}
                for value in values
            ), code, ["pay (profile prod)"])
        for key, values, code in (
            ("bootstrap-servers", ("a:1", "b:1"), 4),
            ("properties.session.timeout.ms", (9000, 900), 3),
        )
    },
    "a profile of Spring": (
        (spring("Range"), spring("Range") | spring("Sticky", "pay/application-prod.yaml")),
        3, ["pay (profile prod)"]),
    **{
        f"a profile of Spring that {name}, with a group of its own": (
            change, 4, ["1 of 2 groups starts differently", f"group.id  {groups}"])
        for name, change, groups in (
            ("comes", (spring("Range"), spring("Range") | PROD), "pay → bill"),
            ("goes", (spring("Range") | PROD, spring("Range")), "bill → pay"),
        )
    },
    "a consumer that goes, and another one that comes": (
        ({"c-a.properties": CONSUMER}, {"c-b.properties": CONSUMER.replace("pay", "bill")}),
        0, ["2 of 2 groups start differently: 2 safe"]),
    "a consumer that leaves its group to others": (
        (
            spring("Range") | spring("Range", "bill/app.yaml"),
            spring("Range") | {"bill/app.yaml": BILL},
        ),
        4, ["1 of 2 groups starts differently", "group.id  pay → bill"]),
    "a profile in a ConfigMap that nobody mounts": (
        both("a.yaml", PROFILE, f"{JAVA}RangeAssignor", f"{JAVA}StickyAssignor"),
        3, ["pay (profile prod)"]),
    "the catalog of Gradle, for the project above it": (
        (catalog("2.8.2"), catalog("3.9.1")),
        0, ["→ java 3.9.1", "\nsafe          pay\n", "not groups of"]),
    "a heartbeat under KIP-848": (
        both(
            "c.properties", CONSUMER + "group.protocol=consumer\n{}", "", "heartbeat.interval.ms=9"
        ), 3, ["heartbeat.interval.ms  not set → 9"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_files_is_judged(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (before, after), code, said = CASES[case]
    old, new = write(tmp_path / "old", before), write(tmp_path / "new", after)
    assert run(["check", str(old), str(new)]) == code
    out = capsys.readouterr().out
    assert [text for text in said if text not in out and not text.startswith("not ")] == []
    assert [text for text in said if text.startswith("not ") and text[4:] in out] == []
    assert ("NOT VERIFIED" in out) is (code == 4)
    assert run(["check", str(new), str(new)]) == 0
