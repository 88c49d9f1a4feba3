"""Each format of a manifest: the names and versions in it, and what is not understood."""

from pathlib import Path

import pytest

from rebal.inspectors.manifests.reader import read_manifests

CASES = {
    "pom.xml": (
        """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <properties><kafka.version>3.7.1</kafka.version></properties>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
      <version>${kafka.version}</version></dependency>
    <dependency><groupId>com.typesafe.akka</groupId><artifactId>akka-stream-kafka_2.13</artifactId>
      <version>4.0.2</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>3.7.1</version><scope>test</scope></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-api</artifactId></dependency>
  </dependencies>
</project>""",
        [
            ("maven", "org.apache.kafka:kafka-clients", "3.7.1", "pom.xml"),
            ("maven", "com.typesafe.akka:akka-stream-kafka_2.13", "4.0.2", "pom.xml"),
        ],
    ),
    "build.gradle": (
        """plugins { id 'java' }
dependencies {
    // implementation 'org.apache.kafka:kafka-streams:1.0.0'
    implementation 'org.apache.kafka:kafka-clients:3.9.1'
    implementation group: 'io.projectreactor.kafka', name: 'reactor-kafka', version: '1.3.23'
    testImplementation 'org.springframework.kafka:spring-kafka-test:3.2.0'
}""",
        [
            ("maven", "org.apache.kafka:kafka-clients", "3.9.1", "build.gradle:4"),
            ("maven", "io.projectreactor.kafka:reactor-kafka", "1.3.23", "build.gradle:5"),
        ],
    ),
    "build.gradle.kts": (
        'dependencies {\n    implementation("io.micronaut.kafka:micronaut-kafka:5.4.0")\n}',
        [("maven", "io.micronaut.kafka:micronaut-kafka", "5.4.0", "build.gradle.kts:2")],
    ),
    "g/libs.versions.toml": (
        """[versions]
kafka = "3.8.0"
[libraries]
clients = { module = "org.apache.kafka:kafka-clients", version.ref = "kafka" }
streams = { group = "org.apache.kafka", name = "kafka-streams", version = "3.8.1" }
spring = "org.springframework.kafka:spring-kafka:3.2.0"
""",
        [
            ("maven", "org.apache.kafka:kafka-clients", "3.8.0", "g/libs.versions.toml"),
            ("maven", "org.apache.kafka:kafka-streams", "3.8.1", "g/libs.versions.toml"),
            (
                "maven",
                "org.springframework.kafka:spring-kafka",
                "3.2.0",
                "g/libs.versions.toml",
            ),
        ],
    ),
    "go.mod": (
        """module example.com/orders

go 1.23

require (
\tgithub.com/IBM/sarama v1.43.3
\tgithub.com/twmb/franz-go v1.18.0 // indirect
)

require github.com/segmentio/kafka-go v0.4.47

exclude (
\tgithub.com/IBM/sarama v1.40.0
)

replace github.com/IBM/sarama => github.com/IBM/sarama v1.45.0
""",
        [
            ("golang", "github.com/IBM/sarama", "v1.45.0", "go.mod:6"),
            ("golang", "github.com/twmb/franz-go", "v1.18.0", "go.mod:7"),
            ("golang", "github.com/segmentio/kafka-go", "v0.4.47", "go.mod:10"),
        ],
    ),
    "package-lock.json": (
        """{"lockfileVersion": 3, "packages": {"": {"dependencies": {"kafkajs": "^2"}},
 "node_modules/kafkajs": {"version": "2.2.4"},
 "node_modules/a/node_modules/@confluentinc/kafka-javascript": {"version": "1.2.0"}}}""",
        [
            ("npm", "kafkajs", "2.2.4", "package-lock.json"),
            ("npm", "@confluentinc/kafka-javascript", "1.2.0", "package-lock.json"),
        ],
    ),
    "npm-shrinkwrap.json": (
        """{"lockfileVersion": 1, "dependencies": {"a": {"version": "1.0.0", "dependencies":
 {"node-rdkafka": {"version": "2.18.0"}}}}}""",
        [("npm", "node-rdkafka", "2.18.0", "npm-shrinkwrap.json")],
    ),
    "pnpm-lock.yaml": (
        """lockfileVersion: '9.0'
packages:

  '@confluentinc/kafka-javascript@1.3.0':
    resolution: {integrity: sha512-x}
  kafkajs@2.2.4:
    resolution: {integrity: sha512-y}
  /kafka-node@5.0.0:
    resolution: {integrity: sha512-z}
""",
        [
            ("npm", "@confluentinc/kafka-javascript", "1.3.0", "pnpm-lock.yaml:4"),
            ("npm", "kafkajs", "2.2.4", "pnpm-lock.yaml:6"),
            ("npm", "kafka-node", "5.0.0", "pnpm-lock.yaml:8"),
        ],
    ),
    "yarn.lock": (
        """# yarn lockfile v1

"@confluentinc/kafka-javascript@^1.0.0":
  version "1.0.0"
  resolved "https://example.com"

kafkajs@^2.0.0, kafkajs@^2.2.0:
  version "2.2.4"
""",
        [
            ("npm", "@confluentinc/kafka-javascript", "1.0.0", "yarn.lock:4"),
            ("npm", "kafkajs", "2.2.4", "yarn.lock:8"),
        ],
    ),
    "berry/yarn.lock": (
        """__metadata:
  version: 8

"kafkajs@npm:^2.2.0":
  version: 2.2.4
  resolution: "kafkajs@npm:2.2.4"
""",
        [("npm", "kafkajs", "2.2.4", "berry/yarn.lock:5")],
    ),
    "requirements-prod.txt": (
        "# kafka-python==1.0\nConfluent_Kafka[avro]==2.3.0 ; python_version > '3'\n"
        "aiokafka==0.11.0 --hash=sha256:00\n",
        [
            ("pypi", "confluent-kafka", "2.3.0", "requirements-prod.txt:2"),
            ("pypi", "aiokafka", "0.11.0", "requirements-prod.txt:3"),
        ],
    ),
    "poetry.lock": (
        '[[package]]\nname = "kafka-python"\nversion = "2.0.2"\n\n[[package]]\nname = "six"\n',
        [("pypi", "kafka-python", "2.0.2", "poetry.lock")],
    ),
    "uv.lock": (
        'version = 1\n\n[[package]]\nname = "faust-streaming"\nversion = "0.11.2"\n',
        [("pypi", "faust-streaming", "0.11.2", "uv.lock")],
    ),
    "pyproject.toml": (
        """[project]
dependencies = ["confluent-kafka==2.6.1", "httpx>=0.27"]
[tool.poetry.dependencies]
aiokafka = "0.12.0"
[tool.poetry.group.dev.dependencies]
kafka-python = { version = "2.0.2" }
""",
        [
            ("pypi", "confluent-kafka", "2.6.1", "pyproject.toml"),
            ("pypi", "aiokafka", "0.12.0", "pyproject.toml"),
            ("pypi", "kafka-python", "2.0.2", "pyproject.toml"),
        ],
    ),
    "Gemfile.lock": (
        "GEM\n  specs:\n    karafka (2.4.0)\n      karafka-rdkafka (>= 0.17.2)\n"
        "    rdkafka (0.15.0)\n\nDEPENDENCIES\n  karafka\n",
        [
            ("gem", "karafka", "2.4.0", "Gemfile.lock:3"),
            ("gem", "rdkafka", "0.15.0", "Gemfile.lock:5"),
        ],
    ),
    "src/Orders.csproj": (
        """<Project Sdk="Microsoft.NET.Sdk"><ItemGroup>
  <PackageReference Include="Confluent.Kafka" Version="2.3.0" />
  <PackageReference Include="MassTransit.Kafka"><Version>8.2.0</Version></PackageReference>
</ItemGroup></Project>""",
        [
            ("nuget", "confluent.kafka", "2.3.0", "src/Orders.csproj"),
            ("nuget", "masstransit.kafka", "8.2.0", "src/Orders.csproj"),
        ],
    ),
    "Cargo.lock": (
        'version = 4\n\n[[package]]\nname = "rdkafka-sys"\nversion = "4.7.0+2.3.0"\n',
        [("cargo", "rdkafka-sys", "4.7.0+2.3.0", "Cargo.lock")],
    ),
    "mix.lock": (
        '%{\n  "brod": {:hex, :brod, "3.16.0", "ab", [:rebar3], [], "hexpm", "cd"},\n'
        '  "jason": {:hex, :jason, "1.4.0", "ab", [:mix], [], "hexpm", "cd"},\n}\n',
        [("hex", "brod", "3.16.0", "mix.lock:2")],
    ),
    "Dockerfile": (
        "FROM --platform=linux/amd64 docker.io/timberio/vector:0.35.0-alpine AS a\nFROM a\n",
        [("docker", "timberio/vector", "0.35.0-alpine", "Dockerfile:1")],
    ),
    "compose.yaml": (
        """services:
  collector: {image: "otel/opentelemetry-collector-contrib:0.116.0"}
  logstash: {image: docker.elastic.co/logstash/logstash:8.14.0}
  database: {image: "postgres:16"}
""",
        [
            ("docker", "otel/opentelemetry-collector-contrib", "0.116.0", "compose.yaml"),
            ("docker", "logstash/logstash", "8.14.0", "compose.yaml"),
        ],
    ),
    "k8s/deploy.yaml": (
        """apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - {name: c, image: "mirror.example.com/hub/otel/opentelemetry-collector-contrib:0.137.0"}
""",
        [("docker", "hub/otel/opentelemetry-collector-contrib", "0.137.0", "k8s/deploy.yaml")],
    ),
    "chart/values.yaml": (
        'image:\n  repository: fluent/fluent-bit\n  tag: "3.1.4"\n',
        [("docker", "fluent/fluent-bit", "3.1.4", "chart/values.yaml")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_format_names_its_clients_and_products(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    reading = read_manifests(tmp_path)
    found = [(one.ecosystem, one.name, one.version, one.where) for one in reading.dependencies]
    assert found == expected
    assert reading.notes == ()


def test_every_format_of_one_repository_is_read(tmp_path: Path) -> None:
    for name, (text, _) in CASES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "node_modules/a").mkdir(parents=True)
    (tmp_path / "node_modules/a/package-lock.json").write_text(CASES["package-lock.json"][0])
    reading = read_manifests(tmp_path)
    # Beside a lock file, pyproject.toml gives only ranges.
    expected = sum(len(found) for name, (_, found) in CASES.items() if name != "pyproject.toml")
    assert len(reading.dependencies) == expected
    assert {one.ecosystem for one in reading.dependencies} == {
        "maven", "golang", "npm", "pypi", "gem", "nuget", "cargo", "hex", "docker",
    }  # fmt: skip
