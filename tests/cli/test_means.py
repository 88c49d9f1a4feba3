"""A kept plan remembers how it was made: `rebal verify PLAN` is then the whole command."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rebal.groups.snapshot.documents import dump_snapshot
from tests.cli.conftest import Live, Rebal, Said
from tests.planner.looks import look, pods

LOG = Path(__file__).parents[1] / "data" / "client_logs" / "java-4.1.1-joined.log"
PLAN = "plans/a.yaml"


Keep = Callable[..., Said]


@pytest.fixture
def keep(here: Path, live: Live, rebal: Rebal) -> Keep:
    """Make a plan of the live group, kept in plans/a.yaml."""
    live.show(look(0, pods(1, 1, list=["range"])))
    for folder in ("logs", "plans"):
        Path(folder).mkdir()
    Path("logs/a.log").write_bytes(LOG.read_bytes())
    return lambda *words: rebal("plan-upgrade", "checkout", *words, "--out", PLAN)


def test_verify_reads_the_group_as_its_plan_was_made(live: Live, keep: Keep, rebal: Rebal) -> None:
    Path("c.properties").write_text("security.protocol=SSL\n")
    way = ["-b", "kafka-1:9092", "--command-config", "c.properties", "--timeout", "4"]
    way += ["-X", "ssl.endpoint.identification.algorithm=", "--probe", "--assignor", "sticky"]
    said = keep(*way, "--client-log", "logs", "--log-timezone", "Asia/Tokyo")
    assert "next:  rebal verify plans/a.yaml\n" in said.out
    said = rebal("verify", PLAN, code=4)
    assert "\n            rebal verify plans/a.yaml\n" in said.out
    (made, again), (with_, with_again) = live.connections, live.asked
    assert (made, with_) == (again, with_again)
    assert (again.bootstrap, again.protocol, again.timeout_ms) == ("kafka-1:9092", "SSL", 4000)
    assert again.verify_hostname is False
    assert with_ == (["checkout"], {"probe": True, "assignors": ("sticky",)})
    assert "--client-log" in said.err, "its readers ran"


def test_files_are_found_from_any_folder(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("-b", "kafka-1:9092", "--client-log", "logs/a.log")
    monkeypatch.chdir("plans")
    assert "shows no start of a member" in rebal("verify", "a.yaml", code=4).err
    Path("../logs/a.log").unlink()
    assert "../logs/a.log" in rebal("verify", "a.yaml", code=1).err, "a file that is gone is named"


def test_an_option_that_is_given_again_takes_the_place_of_the_plans_own(
    live: Live, keep: Keep, rebal: Rebal
) -> None:
    way = ["-b", "kafka-1:9092", "-X", "security.protocol=SSL", "--probe", "--assignor", "sticky"]
    keep(*way, "--client-log", "logs")
    Path("new.log").write_bytes(LOG.read_bytes())
    again = ["-b", "kafka-2:9092", "--client-log", "new.log"]
    said = rebal("verify", PLAN, *again, "--expect-members", "2", code=4)
    assert "given again, in place of what the plan keeps: -b, --client-log." in said.err
    config, (_, more) = live.connections[1], live.asked[1]
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
        rebal("verify", PLAN, *words, code=4)
        config = live.connections[-1]
        assert (config.bootstrap, config.protocol) == (host, "SSL"), words
    # A command that lacks an option takes its value for no group.
    rebal("diff", PLAN)
    assert (live.connections[-1], live.asked[-1][0]) == (live.connections[0], ["checkout"])


def test_a_secret_is_named_by_its_variable_and_asked_for(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = ["-X", "sasl.username=ann", "-X", "sasl.password=hunter2"]
    plain = ["-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=PLAIN"]
    keep("-b", "kafka-1:9092", *plain, *login)
    text = Path(PLAN).read_text()
    assert "sasl.mechanism=PLAIN" in text
    assert "hunter2" not in text
    assert "username=" not in text, "the password may stand in its place"
    missing = "REBAL_X_SASL_USERNAME and REBAL_X_SASL_PASSWORD, not set here"
    assert missing in rebal("verify", PLAN, code=2).err
    assert len(live.asked) == 1
    said = [rebal("verify", PLAN, *login, code=4)]
    monkeypatch.setenv("REBAL_X_SASL_USERNAME", "ann")
    monkeypatch.setenv("REBAL_X_SASL_PASSWORD", "hunter2")
    said.append(rebal("verify", PLAN, code=4))
    assert live.connections == [live.connections[0]] * 3
    assert "hunter2" not in "".join(each.out + each.err for each in said)


def test_brokers_from_the_environment_are_asked_for_where_it_has_none(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REBAL_BOOTSTRAP", "kafka-1:9092")
    keep("--probe")
    rebal("verify", PLAN, code=4)
    monkeypatch.delenv("REBAL_BOOTSTRAP")
    for command in ("verify", "diff"):
        assert "needs REBAL_BOOTSTRAP, not set here" in rebal(command, PLAN, code=2).err
    rebal("verify", PLAN, "-b", "kafka-3:9092", code=4)
    assert live.connections[-1].bootstrap == "kafka-3:9092"


def test_a_plan_of_a_saved_group_reads_the_file_until_a_broker_is_named(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.rebal.yaml").write_text(dump_snapshot(live.groups["checkout"]))
    said = rebal("plan-upgrade", "--out", "a.yaml")
    assert "save the group again" in said.out
    assert "next:  rebal verify a.yaml\n" in said.out
    said = rebal("verify", "a.yaml", code=4)
    assert "reading a.rebal.yaml, as the plan was made from it" in said.err
    assert live.asked == []
    assert not list(Path().glob("*.jsonl")), "a file is no event of the roll-out"
    assert "REBAL_BOOTSTRAP" in rebal("verify", "a.yaml", "--watch", code=2).err
    monkeypatch.setenv("REBAL_BOOTSTRAP", "kafka-1:9092")
    rebal("verify", "a.yaml", code=4)
    assert live.asked[0][1]["probe"] is True, "the gate needs lists, and no log was given"


def test_a_log_from_stdin_is_printed_again_and_not_kept(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", LOG.open())
    said = keep("-b", "kafka-1:9092", "--client-log", "-")
    assert "next:  rebal verify plans/a.yaml --client-log -\n" in said.out
    assert "pipe the log into it again" in said.err
    rebal("verify", PLAN, code=4)
