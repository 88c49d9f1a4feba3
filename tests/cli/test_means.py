"""A kept plan remembers how it was made: `rebal verify PLAN` is then the whole command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebal.cli import app
from rebal.groups.model import GroupSnapshot
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.planner.commands import Given
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan, load_plan
from tests.planner.looks import look, pods

Said = pytest.CaptureFixture[str]
LOG = Path(__file__).parents[1] / "data" / "client_logs" / "java-4.1.1-joined.log"


class Cluster:
    """A stand-in for a cluster: it keeps the connection and the words of each question."""

    def __init__(self) -> None:
        self.group: GroupSnapshot = look(0, pods(1, 1, list=["range"]))
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    def read_groups(self, config: Any, names: Sequence[str], **more: Any) -> list[GroupSnapshot]:
        self.asked.append((config, more))
        return [self.group]


@pytest.fixture
def cluster(here: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("rebal.inspectors.kafka.read.read_groups", made.read_groups)
    Path("logs").mkdir()
    Path("logs/a.log").write_bytes(LOG.read_bytes())
    return made


def kept(*words: str) -> None:
    """Make a plan of the live group, kept in plans/a.yaml."""
    Path("plans").mkdir(exist_ok=True)
    assert app.run(["plan-upgrade", "checkout", *words, "--out", "plans/a.yaml"]) in (0, 4)


def test_verify_reads_the_group_as_its_plan_was_made(cluster: Cluster, capsys: Said) -> None:
    Path("c.properties").write_text("security.protocol=SSL\n")
    way = ["-b", "kafka-1:9092", "--command-config", "c.properties", "--timeout", "4"]
    kept(*way, "-X", "ssl.endpoint.identification.algorithm=", "--probe", "--assignor", "sticky",
         "--client-log", "logs", "--log-timezone", "Asia/Tokyo")  # fmt: skip
    said = capsys.readouterr()
    assert "next:  rebal verify plans/a.yaml\n" in said.out
    assert app.run(["verify", "plans/a.yaml"]) == 4
    said = capsys.readouterr()
    assert "\n            rebal verify plans/a.yaml\n" in said.out
    (made, with_), (again, with_again) = cluster.asked
    assert (made, with_) == (again, with_again)
    assert (again.bootstrap, again.protocol, again.timeout_ms) == ("kafka-1:9092", "SSL", 4000)
    assert (again.verify_hostname, with_again["probe"]) == (False, True)
    assert with_again["assignors"] == ("sticky",)
    assert "--client-log" in said.err, "its readers ran"
    assert app.run(["diff", "plans/a.yaml"]) == 0
    assert cluster.asked[2][0] == made


def test_files_are_found_from_any_folder(
    cluster: Cluster, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept("-b", "kafka-1:9092", "--client-log", "logs/a.log")
    monkeypatch.chdir("plans")
    capsys.readouterr()
    assert app.run(["verify", "a.yaml"]) == 4
    assert "shows no start of a member" in capsys.readouterr().err
    Path("../logs/a.log").unlink()
    assert app.run(["verify", "a.yaml"]) == 1
    assert "../logs/a.log" in capsys.readouterr().err, "a file that is gone is named"


def test_an_option_that_is_given_again_takes_the_place_of_the_plans_own(
    cluster: Cluster, capsys: Said
) -> None:
    kept("-b", "kafka-1:9092", "-X", "security.protocol=SSL", "--probe", "--client-log", "logs")
    capsys.readouterr()
    Path("new.log").write_bytes(LOG.read_bytes())
    again = ["-b", "kafka-2:9092", "--client-log", "new.log"]
    assert app.run(["verify", "plans/a.yaml", *again, "--expect-members", "2"]) == 4
    said = capsys.readouterr()
    assert "given again, in place of what the plan keeps: -b, --client-log." in said.err
    config, more = cluster.asked[1]
    assert (config.bootstrap, config.protocol, more["probe"]) == ("kafka-2:9092", "SSL", True)
    typed = f"rebal verify plans/a.yaml {shlex.join(again)} --expect-members 2"
    assert f"\n            {typed}\n" in said.out
    # One setting more is no other connection; settings that name the brokers are one.
    Path("other.properties").write_text("bootstrap.servers = kafka-3:9092\n")
    Path("more.properties").write_text("client.id = x\n")
    for words, host in (
        (["-X", "client.id=x"], "kafka-1:9092"),
        (["-X", "bootstrap.servers=kafka-2:9092"], "kafka-2:9092"),
        (["--command-config", "other.properties"], "kafka-3:9092"),
        (["--command-config", "more.properties"], "kafka-1:9092"),
    ):
        assert app.run(["verify", "plans/a.yaml", *words]) == 4
        config, _ = cluster.asked[-1]
        assert (config.bootstrap, config.protocol) == (host, "SSL"), words


def test_a_secret_is_named_by_its_variable_and_asked_for(
    cluster: Cluster, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = ["-X", "sasl.username=ann", "-X", "sasl.password=hunter2"]
    kept("-b", "kafka-1:9092", "-X", "security.protocol=SASL_SSL",
         "-X", "sasl.mechanism=PLAIN", *login)  # fmt: skip
    text = Path("plans/a.yaml").read_text()
    assert "sasl.mechanism=PLAIN" in text
    assert "hunter2" not in text
    assert "username=" not in text, "the password may stand in its place"
    capsys.readouterr()
    assert app.run(["verify", "plans/a.yaml"]) == 2
    missing = "REBAL_X_SASL_USERNAME and REBAL_X_SASL_PASSWORD, not set here"
    assert missing in capsys.readouterr().err
    assert len(cluster.asked) == 1
    for name in ("-X", "variable"):
        if name == "variable":
            monkeypatch.setenv("REBAL_X_SASL_USERNAME", "ann")
            monkeypatch.setenv("REBAL_X_SASL_PASSWORD", "hunter2")
        more = login if name == "-X" else []
        assert app.run(["verify", "plans/a.yaml", *more]) == 4
        assert cluster.asked[-1][0] == cluster.asked[0][0]
        said = capsys.readouterr()
        assert "hunter2" not in said.out + said.err


def test_brokers_from_the_environment_are_asked_for_where_it_has_none(
    cluster: Cluster, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REBAL_BOOTSTRAP", "kafka-1:9092")
    kept("--probe")
    assert app.run(["verify", "plans/a.yaml"]) == 4
    monkeypatch.delenv("REBAL_BOOTSTRAP")
    capsys.readouterr()
    for words in (["verify", "plans/a.yaml"], ["diff", "plans/a.yaml"]):
        assert app.run(words) == 2
        assert "needs REBAL_BOOTSTRAP, not set here" in capsys.readouterr().err
    assert app.run(["verify", "plans/a.yaml", "-b", "kafka-3:9092"]) == 4
    assert cluster.asked[-1][0].bootstrap == "kafka-3:9092"


def test_a_plan_of_a_saved_group_reads_the_file_until_a_broker_is_named(
    cluster: Cluster, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.rebal.yaml").write_text(dump_snapshot(cluster.group))
    assert app.run(["plan-upgrade", "--out", "a.yaml"]) == 0
    said = capsys.readouterr()
    assert "save the group again" in said.out
    assert "next:  rebal verify a.yaml\n" in said.out
    assert app.run(["verify", "a.yaml"]) == 4
    assert "reading a.rebal.yaml, as the plan was made from it" in capsys.readouterr().err
    assert cluster.asked == []
    assert not list(Path().glob("*.jsonl")), "a file is no event of the roll-out"
    assert app.run(["verify", "a.yaml", "--watch"]) == 2
    assert "REBAL_BOOTSTRAP" in capsys.readouterr().err
    monkeypatch.setenv("REBAL_BOOTSTRAP", "kafka-1:9092")
    assert app.run(["verify", "a.yaml"]) == 4
    assert cluster.asked[0][1]["probe"] is True, "the gate needs lists, and no log was given"


def test_a_log_from_stdin_is_printed_again_and_not_kept(
    cluster: Cluster, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", LOG.open())
    kept("-b", "kafka-1:9092", "--client-log", "-")
    said = capsys.readouterr()
    assert "next:  rebal verify plans/a.yaml --client-log -\n" in said.out
    assert "pipe the log into it again" in said.err
    assert app.run(["verify", "plans/a.yaml"]) == 4


def test_a_plan_of_an_earlier_version_gives_what_it_holds(cluster: Cluster) -> None:
    given = Given(connection=("-b", "kafka-1:9092"), plan="old.yaml")
    made = make_plan(cluster.group, given=given)
    Path("old.yaml").write_text(dump_plan(replace(made, given=given)))
    assert load_plan(Path("old.yaml").read_text(), "yaml").given == given
    assert app.run(["verify", "old.yaml"]) == 4
    assert cluster.asked[0][0].bootstrap == "kafka-1:9092"
    assert cluster.asked[0][1]["probe"] is True
