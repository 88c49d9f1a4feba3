"""Where a build keeps a version, and which packages are of tests alone."""

import re
from pathlib import Path

import pytest

from tests.manifests.folders import Files, place, read_folder

CLIENTS, STREAMS = "org.apache.kafka:kafka-clients", "org.apache.kafka:kafka-streams"
BOOT = "org.springframework.boot:spring-boot-starter-parent"
GRADLE = f'implementation("{CLIENTS}:{{}}")\n'
VERSIONS = "buildSrc/src/main/kotlin/Versions.kt"
CONSTANT = {VERSIONS: 'object Versions {\n    const val kafka: String = "3.9.1"\n}\n'}
SARAMA, FRANZ = "github.com/IBM/sarama", "github.com/twmb/franz-go"
WORK = "use ./pay\n\nreplace (\n\tgithub.com/IBM/sarama => github.com/twmb/franz-go v1.18.0\n)\n"
COLLECTOR = "otel/opentelemetry-collector-contrib"
TEMPLATE = f"kind: {{{{ .Kind }}}}\n{{{{- if .On }}}}\nimage: {COLLECTOR}:0.136.0\n{{{{- end }}}}\n"
MADE = """v = "7.7.0"\nccs = "$v-ccs"\nbecause 'a:b:*'\napi "a:b:$ccs"\n"""
SBT = """object Dependencies {
  val kafka = "3.6.0"
  val clients = "org.apache.kafka" % "kafka-clients" % Versions.kafka
  val streams = "org.apache.kafka" %% "kafka-streams-scala" % "3.5.0" % Test
}
"""
LOCKED = (
    f"{CLIENTS}:3.9.1=compileClasspath,runtimeClasspath\n{STREAMS}:3.9.1=testRuntimeClasspath\n"
)
CENTRAL = """<Project><PropertyGroup><K>2.6.1</K></PropertyGroup>
<ItemGroup><PackageVersion Include="Confluent.Kafka" Version="$(K)"/></ItemGroup></Project>"""
CSPROJ = '<Project><PackageReference Include="Confluent.Kafka"/>{}</Project>'
KAFKA_K = "<properties><k>{}</k></properties>"


def artifact(name: str, version: str = "", more: str = "") -> str:
    group, _, own = name.partition(":")
    written = f"<version>{version}</version>" if version else ""
    return f"<groupId>{group}</groupId><artifactId>{own}</artifactId>{written}{more}"


def pom(*needs: str, parent: str = "", managed: tuple[str, ...] = (), more: str = "") -> str:
    """Return a pom.xml; it may be the child of `parent`, and `more` is what else it holds."""
    tables = [
        "".join(f"<dependency>{one}</dependency>" for one in each) for each in (needs, managed)
    ]
    own, central = (f"<dependencies>{each}</dependencies>" for each in tables)
    above = f"<parent>{parent}</parent>" if parent else ""
    central = f"<dependencyManagement>{central}</dependencyManagement>"
    return f"<project>{above}{more}{own}{central}</project>"


def profiles(*versions: str, own: str = "") -> Files:
    each = "".join(f"<profile>{KAFKA_K.format(version)}</profile>" for version in versions)
    more = f"<profiles>{each}</profiles>{KAFKA_K.format(own) if own else ''}"
    return {"pom.xml": pom(artifact(CLIENTS, "${k}"), more=more)}


def boot(version: str, more: str = "") -> Files:
    needs = (artifact("org.springframework.kafka:spring-kafka"), artifact(CLIENTS))
    return {"pom.xml": pom(*needs, parent=artifact(BOOT, version), more=more)}


def script(line: str) -> Files:
    return {"build.gradle": GRADLE.format("2.8.2") + line.format(CLIENTS) + "\n"}


QUARKUS = artifact("io.quarkus:${q}", "3.27.0", "<scope>import</scope>")
SHOP = artifact("g:shop-bom", "1", "<scope>import</scope>")
SHOP_BOM = pom(managed=(artifact(STREAMS, "3.9.1"),), more="<artifactId>shop-bom</artifactId>")
PLATFORM = "<properties><q>quarkus-bom</q></properties>"
TOP = pom(
    managed=(artifact(CLIENTS, "${k}"),),
    more="<artifactId>top</artifactId>" + KAFKA_K.format("3.6.0"),
)
# The files, and what they name: packages with versions and places, and versions not understood.
CONDA = "dependencies:\n  - python-confluent-kafka=2.3.0\n  - pip:\n    - aiokafka==0.12.0\n"
KEPT: dict[str, tuple[Files, str]] = {
    "properties above the script": (
        {"gradle.properties": "kafka=3.9.1\n", "app/build.gradle": GRADLE.format("$kafka")},
        "kafka-clients 3.9.1 app/build.gradle:1"),
    "a constant of buildSrc": (
        CONSTANT | {"app/build.gradle.kts": GRADLE.format("${Versions.kafka}")},
        "kafka-clients 3.9.1 app/build.gradle.kts:1"),
    "coordinates in buildSrc": (
        CONSTANT | {"buildSrc/Libs.kt": GRADLE.format("${Versions.kafka}")},
        "kafka-clients 3.9.1 buildSrc/Libs.kt:1"),
    "a variable of others, and coordinates with any version": (
        {"build.gradle": MADE.replace("a:b", CLIENTS)},
        "kafka-clients 7.7.0-ccs build.gradle:3"),
    "a constant that is commented out, and one of coordinates": (
        {
            VERSIONS: '// const val kafka = "2.3.0"\nval b = "org.apache.kafka:kafka:2.8.0"\n',
            "build.gradle": "ext.kafka = '3.9.1'\n" + GRADLE.format("${kafka}"),
        }, "kafka-clients 3.9.1 build.gradle:2"),
    "two constants of one name": (
        CONSTANT | {"build.gradle": "ext.v = [kafka: '2.8.2']\n" + GRADLE.format("$kafka")},
        "kafka-clients None build.gradle:2; (2.8.2 or 3.9.1)"),
    **{
        f"{name} of Kotlin": (
            {"build.gradle.kts": f"{kept}\n" + GRADLE.format(used)},
            "kafka-clients 3.9.1 build.gradle.kts:2")
        for name, kept, used in (
            ("an extra property", 'val kafka by extra("3.9.1")', "$kafka"),
            ("a property by name", 'extra["kafka"] = "3.9.1"', '${property("kafka")}'),
        )
    },
    **{
        f"a rich version: {version.split()[0]}": (
            {"build.gradle": f"\napi('{CLIENTS}') {{\n  version {{ {version} }}\n}}\n"},
            "kafka-clients 3.9.1 build.gradle:2")
        for version in ("strictly '3.9.1'", "strictly('[3, 4['); prefer('3.9.1')")
    },
    "a rich version of the catalog": (
        {
            "gradle/libs.versions.toml": f'[libraries]\nk = {{module = "{CLIENTS}", version = '
            '{strictly = "[3, 4[", prefer = "3.9.1"}}\n'
        }, "kafka-clients 3.9.1 gradle/libs.versions.toml"),
    "a catalog in the settings": (
        {
            "settings.gradle": 'version("kafka", "3.9.1")\n'
            'library("k", "org.apache.kafka", "kafka-clients").versionRef("kafka")\n'
            'library("s", "org.apache.kafka", "kafka-streams").version("3.9.0")\n'
        }, "kafka-clients 3.9.1 settings.gradle:2; kafka-streams 3.9.0 settings.gradle:3"),
    "a rule for all packages of a group": (
        script("if (d.requested.group == 'org.apache.kafka') {{ d.useVersion '3.9.1' }}"),
        "kafka-clients None build.gradle:1; (2.8.2 or 3.9.1)"),
    "the plugin of Spring Boot on the root's class path": (
        {
            "build.gradle": "ext.boot = '3.5.3'\nclasspath("
            "\"org.springframework.boot:spring-boot-gradle-plugin:$boot\")\n",
            "a/build.gradle": f"api '{CLIENTS}'\n",
        }, "kafka-clients 3.9.1 a/build.gradle:1"),
    "a version of the catalog in a script": (
        {
            "gradle/libs.versions.toml": '[versions]\nkafka = "3.9.1"\n',
            "app/build.gradle.kts": GRADLE.format("${libs.versions.kafka.get()}"),
        }, "kafka-clients 3.9.1 app/build.gradle.kts:1"),
    "another version in a script": (
        script("resolutionStrategy {{ force '{}:3.9.1' }}"),
        "kafka-clients None build.gradle:1; (2.8.2 or 3.9.1)"),
    **{
        f"a line that gives no other version: {line.split()[0]}": (
            script(line),
            "kafka-clients 2.8.2 build.gradle:1",
        )
        for line in (
            "    testImplementation '{}:3.9.1'",
            "dependencies {{ integrationTestRuntimeOnly '{}:3.9.1' }}",
            "    implementation '{}:2.8.2'",
        )
    },
    "Gradle's lock file": ({"gradle.lockfile": LOCKED}, "kafka-clients 3.9.1 gradle.lockfile:1"),
    "a platform of another repository": (
        {"build.gradle": f"api platform('com.acme:bom:1.3')\napi '{CLIENTS}'\n"},
        "kafka-clients None build.gradle:2; (that of com.acme:bom 1.3)"),
    "a library with the name of a platform": (
        {"build.gradle": f"api 'com.acme:platform-metrics:1.3'\napi '{CLIENTS}:$k'\n"},
        "kafka-clients None build.gradle:2; ($k)"),
    "sbt": (
        {"project/Dependencies.scala": SBT}, "kafka-clients 3.6.0 project/Dependencies.scala:3"),
    "an indirect module of Go": (
        {"go.mod": f"require {SARAMA} v1.43.3 // indirect\nrequire {FRANZ} v1.18.0\n"},
        "franz-go v1.18.0 go.mod:2"),
    "indirect modules of Go alone": (
        {"go.mod": f"require {SARAMA} v1.43.3 // indirect\n"}, "sarama v1.43.3 go.mod:1"),
    "Spring Boot 4's starter": (
        {
            "build.gradle": "plugins { id 'org.springframework.boot' version '4.0.0' }\n"
            "api 'org.springframework.boot:spring-boot-starter-kafka'\n"
        }, "spring-boot-starter-kafka 4.0.0 build.gradle:2"),
    "a workspace of Go": (
        {"go.work": WORK, "pay/go.mod": "require github.com/IBM/sarama v1.43.3\n"},
        "franz-go v1.18.0 pay/go.mod:1"),
    "an image in .env": (
        {".env": f"OTEL_IMAGE={COLLECTOR}:0.136.0\n"},
        "opentelemetry-collector-contrib 0.136.0 .env"),
    **{
        f"a chart in {name}": (
            {name: text.format("opentelemetry-collector", "0.140.0")},
            f"opentelemetry-collector None {name}; (chart 0.140.0)",
        )
        for name, text in (
            ("Chart.yaml", "apiVersion: v2\ndependencies:\n- {{name: {}, version: {}}}\n"),
            ("argo.yaml", "kind: A\napiVersion: a\nspec: {{chart: {}, targetRevision: {}}}\n"),
        )
    },
    "an image in a template": (
        {"chart/templates/a.yaml": TEMPLATE},
        "opentelemetry-collector-contrib 0.136.0 chart/templates/a.yaml"),
    "conda": ({"environment.yml": CONDA}, "aiokafka 0.12.0 environment.yml:4; "
        "python-confluent-kafka 2.3.0 environment.yml:2"),
    "pip in a Dockerfile": (
        {"Dockerfile": "FROM x\nRUN pip install \\\n  'confluent-kafka[avro]==2.3.0' && a==b\n"},
        "confluent-kafka 2.3.0 Dockerfile:3"),
    "npm in a Dockerfile": (
        {"Dockerfile": "# RUN yarn add node-rdkafka@2.0.0\nRUN npm i -g kafkajs@2.2.4 a@$b; :\n"
         "RUN pnpm add @confluentinc/kafka-javascript@$V\n"},
        "kafka-javascript None Dockerfile:3; kafkajs 2.2.4 Dockerfile:2; ($V)"),
    "gem in a Dockerfile": (
        {"Dockerfile": "FROM ruby:3\nRUN gem install ruby-kafka -v 0.7.10 && \\\n"
         "  gem install 'rdkafka:0.15.0'\n"},
        "rdkafka 0.15.0 Dockerfile:3; ruby-kafka 0.7.10 Dockerfile:2"),
    "a BOM with two versions": (
        boot("${k}", f"{KAFKA_K.format('3.5.3')}<profiles><profile>{KAFKA_K.format('3.1.0')}"
             "</profile></profiles>"),
        "kafka-clients None pom.xml; spring-boot-starter-parent None pom.xml; "
        "spring-kafka None pom.xml; (3.5.3 or 3.1.0)"),
    "a map of Gradle on two lines": (
        {"build.gradle": "def v = '3.9.1'\napi group: 'org.apache.kafka', name: 'kafka-clients',\n"
         "  version: v\n"}, "kafka-clients 3.9.1 build.gradle:2"),
    "a Gemfile": (
        {"Gemfile": "gem 'ruby-kafka', '0.7.10'\n"}, "ruby-kafka 0.7.10 Gemfile:1"),
    "a folder of requirements": (
        {"requirements/base.txt": "aiokafka==0.12.0\n"}, "aiokafka 0.12.0 requirements/base.txt:1"),
    "central versions of .NET": (
        {"Directory.Packages.props": CENTRAL, "src/A.csproj": CSPROJ.format("")},
        "confluent.kafka 2.6.1 Directory.Packages.props; confluent.kafka 2.6.1 src/A.csproj"),
    "Spring Boot": (boot("3.5.3"), "kafka-clients 3.9.1 pom.xml; spring-kafka None pom.xml"),
    "another version than Spring Boot's": (
        boot("3.5.3", "<properties><kafka.version>3.8.0</kafka.version></properties>"),
        "kafka-clients 3.8.0 pom.xml; spring-kafka None pom.xml"),
    "Spring Boot for Kafka Streams": (
        {"pom.xml": pom(artifact(STREAMS), parent=artifact(BOOT, "2.1.18.RELEASE"))},
        "kafka-streams 2.0.1 pom.xml"),
    "another version than Spring Boot's, in a script": (
        {
            "build.gradle": "plugins { id 'org.springframework.boot' version '3.5.3' }\n"
            f"ext['kafka.version'] = '3.8.0'\napi '{STREAMS}'\n"
        }, "kafka-clients 3.8.0 build.gradle:2; kafka-streams 3.8.0 build.gradle:3"),
    "the platform of Quarkus by properties": (
        {
            "gradle.properties": "q=io.quarkus\nv=3.27.0\n",
            "build.gradle": 'api enforcedPlatform("${q}:quarkus-bom:${v}")\napi \''
            "io.quarkus:quarkus-kafka-streams'\n",
        }, "quarkus-kafka-streams 3.27.0 build.gradle:2"),
    "a version of Spring Boot that nobody looked up": (
        boot("99.0.0"),
        "kafka-clients None pom.xml; spring-boot-starter-parent 99.0.0 pom.xml; "
        "spring-kafka None pom.xml"),
    **{
        f"the plugin of Spring Boot in {name}": (
            {name: text, "a/build.gradle": f"plugins {{ id 'x' }}\napi '{CLIENTS}'\n"},
            "kafka-clients 3.9.1 a/build.gradle:2")
        for name, text in (
            ("build.gradle", "id 'org.springframework.boot' version '3.5.3' apply false\n"),
            ("gradle/libs.versions.toml", '[plugins]\nb = "org.springframework.boot:3.5.3"\n'),
        )
    },
    "Spring Boot without Kafka": (
        {
            "pom.xml": pom(parent=artifact(BOOT, "3.5.3"), more="<name>kafka</name>"),
            "build.gradle": "// kafka\nplugins { id 'org.springframework.boot' version '3.5.3' }\n",
        }, ""),
    "a parent of the same repository": (
        {"pom.xml": TOP, "a/pom.xml": pom(artifact(CLIENTS), parent=artifact("g:top", "1"))},
        "kafka-clients 3.6.0 a/pom.xml; kafka-clients 3.6.0 pom.xml"),
    "a property that the child overrides": (
        {
            "pom.xml": TOP,
            "a/pom.xml": pom(
                artifact(CLIENTS), parent=artifact("g:top", "1"), more=KAFKA_K.format("3.9.1")
            ),
        }, "kafka-clients 3.6.0 pom.xml; kafka-clients 3.9.1 a/pom.xml"),
    "a dependency of a plugin": (
        {
            "pom.xml": pom(
                artifact(CLIENTS, "3.6.0"),
                more="<build><plugins><plugin><dependencies><dependency>"
                f"{artifact(CLIENTS, '3.9.1')}</dependency></dependencies></plugin></plugins>"
                "</build>",
            )
        }, "kafka-clients 3.6.0 pom.xml"),
    "a parent of another repository": (
        {"pom.xml": TOP, "a/pom.xml": pom(artifact(CLIENTS), parent=artifact("com.acme:a", "1.3"))},
        "kafka-clients 3.6.0 pom.xml; kafka-clients None a/pom.xml; (that of com.acme:a 1.3)"),
    "a BOM of the same repository, beside that of Quarkus": (
        {
            "pom.xml": pom(
                artifact(STREAMS), artifact(CLIENTS), managed=(SHOP, QUARKUS), more=PLATFORM
            ),
            "shop-bom/pom.xml": SHOP_BOM,
        },
        "kafka-clients 4.0.0 pom.xml; kafka-streams 3.9.1 pom.xml; "
        "kafka-streams 3.9.1 shop-bom/pom.xml"),
    "an extension of Quarkus": (
        {
            "pom.xml": pom(
                artifact("io.quarkus:quarkus-kafka-streams"), managed=(QUARKUS,), more=PLATFORM
            )
        }, "quarkus-kafka-streams 3.27.0 pom.xml"),
    "a profile with another version": (
        profiles("2.8.2", own="3.9.1"), "kafka-clients None pom.xml; (3.9.1 or 2.8.2)"),
    "profiles with two versions": (
        profiles("3.9.1", "2.8.2", "3.9.1"), "kafka-clients None pom.xml; (3.9.1 or 2.8.2)"),
    "a profile with the same version": (
        profiles("3.9.1", own="3.9.1"), "kafka-clients 3.9.1 pom.xml"),
    "a profile alone": (profiles("3.9.1"), "kafka-clients 3.9.1 pom.xml"),
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_a_version_is_found_where_a_build_keeps_it(case: str, tmp_path: Path) -> None:
    files, expected = KEPT[case]
    found = read_folder(tmp_path, files)
    names = ((re.split("[:/]", one.package)[-1], one) for one in found.libraries)
    lines = sorted(f"{name} {one.product_version} {place(one)}" for name, one in names)
    notes = [note[note.rindex("(") : -1] for note in found.notes]
    assert "; ".join([*lines, *notes]) == expected


PYPROJECT = '[project]\ndependencies = ["confluent-kafka==2.3.0"]\n{}'
PACKAGES = '[[package]]\nname = "confluent-kafka"\nversion = "2.3.0"\n'
TESTS = PACKAGES + '[[package]]\nname = "kafka-python"\nversion = "2.0.2"\n'
GROUP = '[dependency-groups]\ndev = ["kafka-python==2.0.2"]\n'
NODE = '{"dependencies": {"kafkajs": "2.2.4"}, "devDependencies": {"node-rdkafka": "3.0.0"}}'
YARN = 'kafkajs@2.2.4:\n  version "2.2.4"\n\nnode-rdkafka@3.0.0:\n  version "3.0.0"\n'
SDK = '<PackageReference Include="Microsoft.NET.Test.Sdk"/>'
OF_TESTS: dict[str, tuple[Files, list[str]]] = {
    "a group of pyproject.toml": ({"pyproject.toml": PYPROJECT.format(GROUP)}, ["confluent-kafka"]),
    "a group of Poetry": (
        {"pyproject.toml": '[tool.poetry.group.test.dependencies]\nkafka-python = "2.0.2"\n'}, []),
    "a lock file beside it": (
        {"pyproject.toml": PYPROJECT.format(GROUP), "poetry.lock": TESTS}, ["confluent-kafka"]),
    "a lock file of another project": (
        {"a/pyproject.toml": PYPROJECT.format(GROUP), "b/uv.lock": TESTS},
        ["confluent-kafka", "confluent-kafka", "kafka-python"]),
    "what one project of a workspace needs": (
        {"package.json": NODE, "b/package.json": NODE.replace("devD", "d"), "yarn.lock": YARN},
        ["kafkajs", "node-rdkafka"]),
    "devDependencies": ({"package.json": NODE, "yarn.lock": YARN}, ["kafkajs"]),
    "a requirement file": (
        {"load-test/requirements.txt": "aiokafka\n", "test-requirements.txt": "kafka-python\n"},
        ["aiokafka"]),
    "a project of tests": ({"A.Tests.csproj": CSPROJ.format(SDK)}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_TESTS)
def test_a_package_of_tests_alone_is_none_of_the_service(case: str, tmp_path: Path) -> None:
    files, expected = OF_TESTS[case]
    assert sorted(one.package for one in read_folder(tmp_path, files).libraries) == expected
