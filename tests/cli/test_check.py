"""`rebal check` on repositories: git, files, formats, hostile input."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rebal.cli.app import run
from rebal.groups.snapshot.documents import dump_snapshot
from tests.pages import ROOT
from tests.planner.builder import group_of

JAVA = "org.apache.kafka.clients.consumer."
SPRING = """spring:
  kafka:
    consumer:
      group-id: {group}
      properties:
        partition.assignment.strategy: {names}
"""
HELM = "kafka: {{ .Values.kafka }}\n{{ if }}"
OF_COMPOSE = "services:\n  a:\n    environment:\n      - KAFKA_ASSIGNMENT_STRATEGY={}\n"
OF_A_WORKER = (
    "group.id=kafka\nconfig.storage.topic=c\noffset.storage.topic=o\nstatus.storage.topic=s\n"
    "consumer.partition.assignment.strategy={}\n"
)
FILE = "pay/src/main/resources/application.yaml"
Screen = Callable[..., tuple[int, str, str]]


def properties(group: str, names: str) -> str:
    return f"group.id={group}\npartition.assignment.strategy={names}\n"


def image(version: str) -> str:
    return f"services:\n  a:\n    image: otel/opentelemetry-collector-contrib:{version}\n"


def spring(group: str, *classes: str) -> str:
    return SPRING.format(group=group, names=",".join(f"{JAVA}{each}" for each in classes))


def git(folder: Path, *words: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        own |= {f"GIT_{who}_NAME": "x", f"GIT_{who}_EMAIL": "x"}
    command = ["git", "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | own)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose last commit runs range."""
    write(tmp_path, {FILE: spring("pay", "RangeAssignor")})
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    """Return a function that runs `rebal check` and returns its code, stdout and stderr."""

    def ran(*words: object) -> tuple[int, str, str]:
        code = run(["check", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return ran


def changed(repository: Path) -> None:
    write(repository, {FILE: spring("pay", "CooperativeStickyAssignor")})


def test_a_working_tree_is_compared_with_a_revision(repository: Path, screen: Screen) -> None:
    assert screen("--base", "HEAD", repository)[:2] == (
        0,
        "no group starts differently: 1 group declared\n",
    )
    changed(repository)
    code, out, _ = screen("--base", "HEAD", repository)
    assert code == 3
    assert (
        f"REJECTED      pay\nchange        assignor list  [range] → [cooperative-sticky]   {FILE}:6"
        in out
    )
    assert "two bounces" in out
    assert screen("--base", "HEAD", repository, "--exit-zero")[0] == 0


def test_a_folder_of_the_repository_is_compared_alone(repository: Path, screen: Screen) -> None:
    changed(repository)
    write(
        repository,
        {"bill/consumer.properties": "group.id=bill\npartition.assignment.strategy=range\n"},
    )
    code, out, _ = screen("--base", "HEAD", repository / "bill")
    assert (code, "pay" in out, "bill" in out) == (0, False, True)


def test_nothing_of_the_repository_changes(repository: Path, screen: Screen) -> None:
    changed(repository)

    def state() -> dict[str, tuple[float, bytes]]:
        files = (path for path in repository.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime, path.read_bytes()) for path in files}

    before = state()
    screen("--base", "HEAD", repository)
    assert state() == before


def test_an_ignored_file_is_not_of_the_working_tree(repository: Path, screen: Screen) -> None:
    write(
        repository, {".gitignore": "out/\n", "out/application.yaml": spring("x", "RangeAssignor")}
    )
    assert screen("--base", "HEAD", repository)[1].startswith("no group starts differently")


def test_two_files_of_other_names_are_compared(tmp_path: Path, screen: Screen) -> None:
    for name, names in (("old", "range"), ("new", "roundrobin")):
        write(tmp_path, {f"{name}.properties": properties("pay", names)})
    code, out, _ = screen(tmp_path / "old.properties", tmp_path / "new.properties")
    assert (code, "new.properties:2" in out) == (3, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base", "no-such", "REPO"], "has no such revision"),
        (["--base", "--output=x", "REPO"], "has no such revision"),
        (["--base", "HEAD", "OUTSIDE"], "not a git repository"),
        (["--base", "HEAD", "REPO/missing"], "is no folder"),
        (["REPO", "REPO/missing"], "there is no such file or folder"),
        (["REPO"], "give BEFORE and AFTER, or --base REV"),
        (["--base", "HEAD", "REPO", "REPO"], "give BEFORE and AFTER, or --base REV"),
        (["REPO", "REPO", "--probe"], "--probe is about live groups"),
    ],
)
def test_a_version_that_does_not_exist_is_one_sentence(
    repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    screen: Screen,
    words: list[str],
    said: str,
) -> None:
    outside = str(tmp_path_factory.mktemp("outside"))
    typed = [word.replace("REPO", str(repository)).replace("OUTSIDE", outside) for word in words]
    code, out, err = screen(*typed)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_contents_that_the_clone_lacks_count_where_they_are_read(
    repository: Path, screen: Screen
) -> None:
    write(repository, {"src/Main.java": "class Main {}"})
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "two")
    objects = repository / ".git" / "objects"

    def lose(name: str) -> None:
        asked = ["git", "-C", str(repository), "rev-parse", f"HEAD:{name}"]
        blob = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        (objects / blob[:2] / blob[2:]).unlink()

    lose("src/Main.java")
    assert screen("--base", "HEAD", repository)[0] == 0
    lose(FILE)
    code, _, err = screen("--base", "HEAD", repository)
    assert (code, "this clone lacks its contents" in err) == (2, True)


def test_a_chart_of_another_version_declares_no_other_start(tmp_path: Path, screen: Screen) -> None:
    template = "name: kafka-{{ .Release.Name }}\nstrategy: Recreate\n{{ if }}\n"
    for version in ("1", "2"):
        chart = {"chart/Chart.yaml": f"version: {version}\n", "chart/templates/a.yaml": template}
        write(tmp_path / version, chart | {"chart/values.yaml": f"tag: {version}\n"})
    assert screen(tmp_path / "1", tmp_path / "2")[0] == 0


def test_a_library_of_another_language_above_gives_no_version(
    tmp_path: Path, screen: Screen
) -> None:
    cargo = '[[package]]\nname = "rdkafka"\nversion = "0.36.2"\n'
    for folder, lock in (("old", "confluent-kafka==2.10.0\n"), ("new", "aiokafka==0.11.0\n")):
        write(tmp_path / folder, {"requirements.txt": lock, "rust/Cargo.lock": cargo})
    out = screen(tmp_path / "old", tmp_path / "new")[1]
    assert ("the groups of .\n" in out, "the groups of rust" in out) == (True, False)


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("github.com/IBM/sarama v1.43.3", 0, "no group starts differently"),
        ("github.com/twmb/franz-go v1.18.0", 3, "[range]"),
    ],
)
def test_a_folder_that_moved_holds_the_same_consumers(
    tmp_path: Path, screen: Screen, module: str, code: int, said: str
) -> None:
    write(tmp_path / "old", {"pay/go.mod": "require github.com/IBM/sarama v1.43.3\n"})
    write(tmp_path / "new", {"services/pay/go.mod": f"require {module}\n"})
    found, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (found, said in out) == (code, True)


def test_a_module_of_go_does_not_stand_for_the_one_above(tmp_path: Path, screen: Screen) -> None:
    for module in ("IBM/sarama", "twmb/franz-go"):
        text = f"module x\n\nrequire github.com/{module} v1.20.0\n"
        write(tmp_path / module, {"go.mod": text, "collector/go.mod": text})
    out = screen(tmp_path / "IBM/sarama", tmp_path / "twmb/franz-go")[1]
    assert ("the groups of .\n" in out, "the groups of collector\n" in out) == (True, True)


def test_only_files_about_kafka_are_named_as_not_known(tmp_path: Path, screen: Screen) -> None:
    for folder in ("old", "new"):
        write(tmp_path / folder, {"tsconfig.json": "{ // a comment", "kafka.json": '{"kafka": '})
    out = screen(tmp_path / "old", tmp_path / "new")[1]
    assert ("kafka.json: not valid JSON" in out, "tsconfig" in out) == (True, False)


def test_a_file_of_variables_without_a_name_is_read(tmp_path: Path, screen: Screen) -> None:
    for folder, assignor in (("old", "range"), ("new", "cooperative-sticky")):
        lines = f"KAFKA_GROUP_ID=pay\nKAFKA_PARTITION_ASSIGNMENT_STRATEGY={assignor}\n"
        write(tmp_path / folder, {"app/.env": lines})
    code, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (code, "[range] → [cooperative-sticky]   app/.env:2" in out) == (3, True)


def test_without_git_a_sentence_says_so(
    repository: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert screen("--base", "HEAD", repository)[::2] == (
        2,
        "rebal: --base needs git, which is not installed here.\n",
    )


@pytest.mark.parametrize("data", [b"\0\1\2", b"a: [", b"\xff\xfea"])
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, screen: Screen, data: bytes
) -> None:
    (tmp_path / "a.yaml").write_bytes(data)
    code, out, err = screen(tmp_path / "a.yaml", tmp_path / "a.yaml")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_pipe_without_a_writer_is_one_sentence(tmp_path: Path, screen: Screen) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    code, _, err = screen(tmp_path / "a.yaml", tmp_path / "a.yaml")
    assert (code, "nothing was written to this pipe" in err) == (1, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            {"pay/c.properties": properties("pay", "range")},
            {"pay/c.properties": properties("pay", "${NAMES}")},
            id="a list from a placeholder",
        ),
        pytest.param(
            {"pay/c.properties": properties("pay", "${A:range}")},
            {"pay/c.properties": properties("pay", "${A:sticky}")},
            id="another default of a placeholder",
        ),
        pytest.param(
            {
                "chart/templates/c.yaml": "kafka: {{ .Values.kafka }}\n{{ if }}",
                "chart/values.yaml": "a: b\n",
            },
            {
                "chart/templates/c.yaml": "kafka: {{ .Values.kafka }}\n{{ if }}",
                "chart/values.yaml": "a: c\n",
            },
            id="values of a Helm template",
        ),
        pytest.param(
            {"pay/c.properties": properties("pay", "${NAMES}"), "run/x.env": "NAMES=range\n"},
            {"pay/c.properties": properties("pay", "${NAMES}"), "run/x.env": "NAMES=sticky\n"},
            id="the value of a placeholder in another file",
        ),
        pytest.param(
            {"x/compose.yaml": image("0.136.0")},
            {"x/compose.yaml": image("latest")},
            id="a version that is not written",
        ),
        pytest.param(
            {"x/compose.yaml": image("0.136.0")},
            {"x/compose.yaml": image("0.999.0")},
            id="a version that nobody looked up",
        ),
        *(
            pytest.param({name: text.format("range")}, {name: text.format("sticky")}, id=each)
            for each, name, text in (
                ("a list in Compose", "compose.yaml", OF_COMPOSE),
                ("a program's own word", "app.yaml", "kafka:\n  rebalanceStrategy: {}\n"),
                ("a program's own list", "app.yaml", "kafka:\n  assignors:\n  - range\n  - {}\n"),
                ("a list in Kubernetes", "d.yaml", "- name: KAFKA_ASSIGNOR\n  value: {}\n"),
                ("Telegraf", "t.toml", "[[inputs.kafka_consumer]]\nbalance_strategy = '{}'\n"),
                ("the list of a worker's sinks", "worker.properties", OF_A_WORKER),
            )
        ),
        pytest.param(
            {"pay/c.yaml": "group.id: pay\n"},
            {"pay/c.yaml": "group.id: pay\n  kafka: [\n"},
            id="a file that is no YAML any more",
        ),
    ],
)
def test_what_is_not_understood_is_never_safe(
    tmp_path: Path, screen: Screen, before: dict[str, str], after: dict[str, str]
) -> None:
    write(tmp_path / "old", before)
    write(tmp_path / "new", after)
    code, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (code, "NOT VERIFIED" in out) == (4, True)
    assert screen(tmp_path / "old", tmp_path / "old")[0] == 0


@pytest.mark.parametrize(("names", "code"), [("${NAMES}", 4), ("range", 0)])
def test_a_list_that_was_not_known_makes_no_new_group(
    tmp_path: Path, screen: Screen, names: str, code: int
) -> None:
    write(tmp_path / "old", {"c.properties": properties("pay", names)})
    write(tmp_path / "new", {"c.properties": properties("pay", "range")})
    assert screen(tmp_path / "old", tmp_path / "new")[0] == code


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [("kafkajs", "^2.3.0", 0), ("@confluentinc/kafka-javascript", "^1.0.0", 3)],
)
def test_a_range_of_versions_that_have_one_list_is_as_good_as_a_version(
    tmp_path: Path, screen: Screen, name: str, version: str, code: int
) -> None:
    for folder, needs in (("old", {"kafkajs": "^2.2.4"}), ("new", {name: version})):
        write(tmp_path / folder, {"package.json": json.dumps({"dependencies": needs})})
    assert screen(tmp_path / "old", tmp_path / "new")[0] == code


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "partition.assignment.strategy=range\n",
            f"partition.assignment.strategy={JAVA}RangeAssignor\n",
        ),
        ("# partition.assignment.strategy=range\n", "# partition.assignment.strategy=sticky\n"),
        ("x=the assignor is range\n", "x=the assignor differs\n"),
        ('{"assignor": "range", "topic": "a"}\n', '{"assignor": "range", "topic": "b"}\n'),
    ],
)
def test_a_line_that_changes_no_start_is_no_finding(
    tmp_path: Path, screen: Screen, before: str, after: str
) -> None:
    for folder, line in (("old", before), ("new", after)):
        write(tmp_path / folder, {"c.properties": f"group.id=kafka\n{line}"})
    assert screen(tmp_path / "old", tmp_path / "new")[0] == 0


def test_a_lock_file_that_comes_or_goes_is_no_other_consumer(
    tmp_path: Path, screen: Screen
) -> None:
    own = {"package.json": '{"dependencies": {"kafkajs": "^2.0.0"}}'}
    lock = '[[package]]\nname = "x"\n\n"kafkajs@npm:^2.0.0":\n  version: 2.2.4\n'
    write(tmp_path / "old", own | {"yarn.lock": lock})
    write(tmp_path / "new", own)
    for one, two in (("old", "new"), ("new", "old")):
        code, out, _ = screen(tmp_path / one, tmp_path / two)
        assert (code, out) == (0, "no group starts differently: 1 group declared\n")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("3.9.0", "4.1.0", "no group starts differently: 1 group declared"),
        ("2.8.2", "4.1.0", "1 of 1 group starts differently: 1 safe"),
    ],
)
def test_a_version_alone_is_silent_where_no_file_names_a_consumer(
    tmp_path: Path, screen: Screen, was: str, now: str, said: str
) -> None:
    """It may be a producer's, or the project's from which modules inherit it."""
    kafka = "<groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>"
    for version in (was, now):
        one = f"<dependency>{kafka}<version>{version}</version></dependency>"
        pom = f"<project><dependencies>{one}</dependencies></project>"
        config = {"producer.properties": "bootstrap.servers=k:9092\nacks=all\n"}
        write(tmp_path / version, {"pom.xml": pom, **config})
    code, out, _ = screen(tmp_path / was, tmp_path / now)
    assert (code, out.splitlines()[0]) == (0, said)


def test_a_file_with_a_placeholder_may_change_elsewhere(tmp_path: Path, screen: Screen) -> None:
    for folder, more in (("old", "a=b\n"), ("new", "a=c\n")):
        write(tmp_path / folder, {"c.properties": properties("${GROUP}", "range") + more})
    code, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (code, "sets group.id from a placeholder" in out) == (0, True)


def test_a_library_belongs_to_the_consumers_of_its_folder_and_below(
    tmp_path: Path, screen: Screen
) -> None:
    consumer = "group.id={}\nbootstrap.servers=kafka:9092\n"
    files = {
        "pay/conf/c.properties": consumer.format("pay"),
        "bill/c.properties": consumer.format("bill"),
        "bill/requirements.txt": "aiokafka==0.12.0\n",
        "x/compose.yaml": image("0.136.0"),
    }
    write(tmp_path / "old", files | {"pay/go.mod": "require github.com/IBM/sarama v1.43.3\n"})
    write(tmp_path / "new", files | {"pay/go.mod": "require github.com/twmb/franz-go v1.18.0\n"})
    code, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (code, out.splitlines()[0]) == (3, "1 of 3 groups starts differently: 1 rejected")
    assert "REJECTED      pay\n" in out
    assert "library  sarama v1.43.3 → franz-go v1.18.0   pay/go.mod:1" in out


def test_the_configuration_of_a_product_beside_its_image_is_read(
    tmp_path: Path, screen: Screen
) -> None:
    receiver = "receivers:\n  kafka:\n    group_id: otel\n    group_rebalance_strategies: [{}]\n"
    for folder, name in (("old", "range"), ("new", "cooperative-sticky")):
        files = {"x/compose.yaml": image("0.155.0"), "x/otel.yaml": receiver.format(name)}
        write(tmp_path / folder, files)
    code, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (code, "x/otel.yaml:4" in out) == (3, True)
    assert "group_rebalance_strategies: cooperative-sticky, range" in out


def test_a_profile_of_spring_is_named(tmp_path: Path, screen: Screen) -> None:
    own = "pay/application-prod.yaml"
    write(tmp_path / "old", {"pay/application.yaml": spring("pay", "RangeAssignor")})
    write(
        tmp_path / "new",
        {
            "pay/application.yaml": spring("pay", "RangeAssignor"),
            own: spring("pay", "StickyAssignor"),
        },
    )
    code, out, _ = screen(tmp_path / "old", tmp_path / "new")
    assert (code, "pay (profile prod)" in out) == (3, True)


def test_documents_name_group_file_and_line(repository: Path, screen: Screen) -> None:
    changed(repository)
    made = json.loads(screen("--base", "HEAD", repository, "-o", "json")[1])
    (group,) = made["groups"]
    assert (made["schema"], made["exit_code"], group["verdict"]) == ("rebal.check/1", 3, "no")
    assert (group["changes"][0]["file"], group["changes"][0]["line"]) == (FILE, 6)
    (run_,) = json.loads(screen("--base", "HEAD", repository, "-o", "sarif")[1])["runs"]
    (result,) = run_["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (result["level"], place["region"], place["artifactLocation"]["uri"]) == (
        "error",
        {"startLine": 6},
        FILE,
    )
    (line,) = screen("--base", "HEAD", repository, "-o", "github")[1].splitlines()
    assert line.startswith(f"::error file={FILE},line=6,title=rebal pay%3A REJECTED::assignor list")
    assert "%0A" in line
    assert "**REJECTED** pay" in screen("--base", "HEAD", repository, "-o", "markdown")[1]


@pytest.mark.parametrize("form", ["text", "markdown", "github", "sarif", "json", "yaml"])
def test_names_from_files_are_no_commands_of_a_terminal(
    tmp_path: Path, screen: Screen, form: str
) -> None:
    name = "a\x1b[31m,line=9::x.yaml"
    for folder, names in (("old", "RangeAssignor"), ("new", "StickyAssignor")):
        write(tmp_path / folder, {name: spring('"pay\\e[2J%0A\\n::error::x"', names)})
    code, out, err = screen(tmp_path / "old", tmp_path / "new", "-o", form)
    assert code == 3
    assert "\x1b" not in out + err
    if form == "github":
        (line,) = out.splitlines()
        assert line.startswith("::error file=a\\x1b[31m%2Cline=9%3A%3Ax.yaml,line=")
        assert "%250A" in line


def test_the_catalog_of_gradle_is_that_of_the_project_above_it(
    tmp_path: Path, screen: Screen
) -> None:
    """And a library whose version is not known is no product."""
    line = 'kafka-clients = "org.apache.kafka:kafka-clients:{}"\n'
    for folder, version in (("old", "2.8.2"), ("new", "3.9.1"), ("open", "[3.9,4[")):
        catalog = f"[libraries]\n{line.format(version)}"
        consumer = "group.id=pay\nbootstrap.servers=kafka:9092\n"
        files = {"gradle/libs.versions.toml": catalog, "consumer.properties": consumer}
        write(tmp_path / folder, files)
    for folder, says in (("new", "→ java 3.9.1"), ("open", "→ java ")):
        code, out, _ = screen(tmp_path / "old", tmp_path / folder)
        assert (code, says in out, "groups of" in out) == (0, True, False)
        assert "\nsafe          pay\n" in out
        assert "product" not in out


@pytest.mark.parametrize(
    ("changed", "code"),
    [("ARG V={}\nFROM logstash:${{V}}\n", 4), ("FROM logstash:${{V}}\nRUN echo {}\n", 0)],
)
def test_a_variable_that_a_version_depends_on_is_not_safe_where_it_changes(
    changed: str, code: int, tmp_path: Path, screen: Screen
) -> None:
    for folder, version in (("old", "7.17.0"), ("new", "8.15.0")):
        write(tmp_path / folder, {"Dockerfile": changed.format(version)})
    made, out, _ = screen(tmp_path / "old", tmp_path / "new")
    note = "the version of logstash is not a plain one (${V})."
    assert (made, out.count(note)) == (code, 2 if code else 1)


def test_a_saved_group_is_asked_instead_of_the_files(repository: Path, screen: Screen) -> None:
    changed(repository)
    both = ["range", "cooperative-sticky"]
    group = {"group_id": "pay", "members": [{"id": "a", "list": both}, {"id": "b", "list": both}]}
    saved = repository / "pay.rebal.yaml"
    for reloaded, expected in ((False, 0), (None, 4)):
        seen = dump_snapshot(group_of(group | {"reloaded": reloaded}), "yaml")
        saved.write_text(seen)
        code, out, _ = screen("--base", "HEAD", repository, "--snapshot", saved)
        assert (code, "live group" in out) == (expected, True)
    saved.write_text(dump_snapshot(group_of({"group_id": "bill"}), "yaml"))
    code, _, err = screen("--base", "HEAD", repository, "--snapshot", saved)
    assert (code, "its group bill does not start differently" in err) == (3, True)


def test_the_examples_for_pipelines_run(
    repository: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(repository)
    workflow = yaml.safe_load((ROOT / "examples/ci/github.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["rebal"]["steps"] if "run" in step]
    job = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())["consumer-groups"]
    lines = [line for line in (*steps, *job["script"]) if line.startswith("rebal check")]
    assert len(lines) == 4
    monkeypatch.chdir(repository)
    for line in lines:
        words = line.partition(" >")[0].split()[2:]
        typed = ["HEAD" if word.startswith('"$') else word for word in words]
        assert screen(*typed)[0] == (0 if "--exit-zero" in typed else 3)
