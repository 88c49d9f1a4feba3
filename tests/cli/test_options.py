"""From options to a group, and the means that a kept plan remembers."""

import gzip
import io
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rebal.cli import app, files
from rebal.cli.errors import ReadError
from rebal.cli.params import Connection, EvidenceOptions
from rebal.cli.sources import EvidenceFiles, GroupSource
from rebal.groups.errors import DocumentError
from rebal.groups.evidence.logs import log_coverage
from rebal.groups.evidence.merge import merge
from rebal.groups.model import Contradiction, GroupSnapshot, Knowledge
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.kafka import listing
from rebal.inspectors.kafka.listing import GroupFailure
from tests.cli.conftest import Live, Rebal, Said
from tests.inspectors.test_request_log import join, line
from tests.planner.looks import look, pods

Make = Callable[..., GroupSnapshot]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REBAL_SNAPSHOT", raising=False)
    return here


def test_a_command_reads_the_only_snapshot_in_the_folder_and_names_it(
    folder: Path, group: Make, capsys: Captured
) -> None:
    files.save_snapshot(group(), folder)
    assert GroupSource().read() == merge(group(), ())
    assert capsys.readouterr().err == (
        "rebal: reading checkout.rebal.yaml, the snapshot in this folder.\n"
    )


def test_the_snapshot_option_overrides_rebal_snapshot_which_overrides_the_folder(
    folder: Path, group: Make, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    files.save_snapshot(group(captured_by="folder"), folder)
    named = files.save_snapshot(group(captured_by="env"), folder / "env.yaml")
    given = files.save_snapshot(group(captured_by="option"), folder / "option.json")
    monkeypatch.setenv("REBAL_SNAPSHOT", str(named))
    assert GroupSource().read().captured_by == "env"
    assert "REBAL_SNAPSHOT" in capsys.readouterr().err
    assert GroupSource(None, given).read().captured_by == "option"
    assert capsys.readouterr().err == ""


def test_a_live_group_is_read_and_a_misspelled_id_suggests_a_group(
    folder: Path, group: Make, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = GroupFailure(group_id="chekout", message="chekout: no such group.", kind="not-found")
    live.show(group(), absent)
    monkeypatch.setenv("REBAL_SNAPSHOT", "not-read.yaml")
    somewhere = Connection(bootstrap="127.0.0.1:1", timeout=2.5)
    found = GroupSource(
        "checkout", None, somewhere, EvidenceOptions(probe=True, assignors=["x"])
    ).read()
    assert found.group == group().group
    assert live.connections[0].timeout_ms == 2500
    assert live.asked == [(["checkout"], {"probe": True, "assignors": ("x",)})]
    monkeypatch.setattr(listing, "group_names", lambda _: {"checkout", "billing"})
    with pytest.raises(ReadError, match=r"no such group\. Did you mean checkout\?"):
        GroupSource("chekout", None, somewhere).read()

    def unreachable(_: Any) -> set[str]:
        raise ConnectError("no broker", "timeout")

    monkeypatch.setattr(listing, "group_names", unreachable)
    with pytest.raises(ReadError, match=r"no such group\.$"):
        GroupSource("chekout", None, somewhere).read()


def sent(member_id: str) -> str:
    """A line of the request log: the join of this member."""
    made = join(("cooperative-sticky", "range"), member_id, member_id)
    made = made.replace('"groupId":"g"', '"groupId":"checkout"')
    return line(made, "[2026-11-20 09:13:00,000] DEBUG {} (kafka.request.logger)\n")


def test_a_saved_snapshot_keeps_the_software_that_a_request_log_showed(
    folder: Path, group: Make, rebal: Rebal
) -> None:
    nameless = [replace(member, software=None) for member in group().members]
    saved = files.save_snapshot(group(members=tuple(nameless)), folder)
    (folder / "r.log").write_text("".join(sent(each.member_id) for each in nameless))
    words = ["--snapshot", str(saved), "--request-log", "r.log"]
    screen = rebal("inspect", *words, "--save-to", "b.yaml").out
    assert screen.endswith(f"{' '.join(words)}\n")
    named = files.read_snapshot(folder / "b.yaml")
    assert {m.software.version for m in named.members if m.software} == {"3.9.1"}


LOG = Path(__file__).parent.parent / "data" / "client_logs" / "java-4.1.1-joined.log"


def start_log(of: GroupSnapshot, number: int) -> bytes:
    """A real start-up log, as if this member of the group had written it."""
    one = of.members[number]
    text = LOG.read_text().replace(
        "consumer-g411-1-3be7fe78-a9f9-4b72-989b-53e080f2bf2b", one.member_id
    )
    return (
        text.replace("g411", of.group.group_id).replace("consumer-g411-1", one.client_id).encode()
    )


def test_client_logs_in_folders_and_patterns_report_the_members_they_cover(
    folder: Path, group: Make, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = files.save_snapshot(group(), folder / "g.rebal.yaml")
    pods = folder / "logs" / "pods"
    (pods / "three").mkdir(parents=True)
    (pods / "three" / "old.log.gz").write_bytes(gzip.compress(start_log(group(), 2)))

    def read_with(*logs: Path) -> tuple[GroupSnapshot, str]:
        found = GroupSource(None, saved, evidence=EvidenceOptions(client_log=[*logs])).read()
        return found, capsys.readouterr().err

    found, said = read_with(folder / "logs")
    assert found.members[2].assignors.knowledge is Knowledge.EXACT
    assert "the start of checkout-3, but not of checkout-1, checkout-2." in said
    first, _, third = (each.member_id for each in found.members)
    assert log_coverage(found).covered == (third,)
    conflict = Contradiction(member_id=first, what="", evidence=found.members[2].assignors.evidence)
    assert log_coverage(replace(found, contradictions=(conflict,))).covered == (first, third)
    assert read_with(folder / "logs" / "*" / "*" / "*.gz")[0] == found
    assert read_with(folder / "logs" / "**" / "*.gz")[0] == found
    with pytest.raises(DocumentError, match="no file matches this pattern"):
        read_with(folder / "logs" / "*.txt")
    for number in range(2):
        (pods / f"{number}.log").write_bytes(start_log(group(), number))
    assert "the start of all 3 members of checkout." in read_with(folder / "logs")[1]
    # A log of another group is always reported.
    (folder / "other.log").write_bytes(start_log(group(group_id="billing"), 0))
    assert "no start of a member that is in checkout now" in read_with(folder / "other.log")[1]
    # For several groups one line is printed, not one for each.
    files_of = EvidenceFiles(EvidenceOptions(client_log=[folder / "other.log"]))
    files_of.added_to([group(), group(group_id="billing")])
    assert capsys.readouterr().err == (
        "rebal: --client-log: shows the start of members of 1 of 2 groups.\n"
    )
    stdin = io.TextIOWrapper(io.BytesIO(start_log(group(), 2)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert read_with(Path("-"))[0].members[2].assignors.list == ("range", "cooperative-sticky")


@pytest.mark.parametrize(("zone", "hour"), [("Asia/Tokyo", 0), ("+09:00", 0), ("-0500", 14)])
def test_a_request_log_shows_an_assignor_list_and_with_a_time_zone_when_it_was_sent(
    folder: Path, group: Make, zone: str, hour: int
) -> None:
    third = group().members[2]
    assert third.assignors.knowledge is Knowledge.BOUNDED
    saved = files.save_snapshot(group(), folder / "g.yaml")
    (folder / "logs").mkdir()
    (folder / "logs" / "broker-1.log").write_text(sent(third.member_id))
    logs = EvidenceOptions(request_log=[folder / "logs"])
    assert GroupSource(None, saved, evidence=logs).read().members[2].joined_at is None
    found = GroupSource(None, saved, evidence=replaced(logs, log_timezone=zone)).read().members[2]
    assert found.assignors.knowledge is Knowledge.EXACT
    assert found.assignors.list == ("cooperative-sticky", "range")
    assert found.joined_at is not None
    assert (found.joined_at.hour, found.joined_at.minute) == (hour, 13)


def test_printed_commands_repeat_harmless_settings_and_no_others(folder: Path) -> None:
    (folder / "k.pem").write_text("x")
    kept = ["ssl.key.location=k.pem", "security.protocol=SASL_SSL",
            "ssl.endpoint.identification.algorithm="]  # fmt: skip
    left_out = {
        "sasl.jaas.config": "x",
        "sasl.username": "PLAIN",
        "ssl.ca.location": "hunter2",
        "ssl.keystore.type": "hunter2",
        "sasl.mechanism": "hunter2",
        "sasl.oauthbearer.token.endpoint.url": "https://h/services/hunter2",
    }
    without_effect = ["client.id=hunter2", "request.timeout.ms=7"]
    typed = [f"{key}={value}" for key, value in left_out.items()]
    connection = Connection(
        "b:1", Path("c.properties"), [*kept, *typed, *without_effect], profile="prod"
    )
    given = connection.given()
    settings = [word for pair in kept for word in ("-X", pair)]
    files = ("--command-config", "c.properties", "--profile", "prod")
    assert given.connection == ("-b", "b:1", *files, *settings)
    names = [f"REBAL_X_{key.upper().replace('.', '_')}" for key in left_out]
    assert given.variables == (*names,)
    assert all(name in given.note for name in names)


def test_printed_commands_repeat_each_evidence_option_once() -> None:
    evidence = EvidenceOptions(
        probe=True,
        assignors=["range"],
        client_log=[Path("a.log"), Path("b.log")],
        inventory=Path("pods.yaml"),
        log_timezone="UTC",
    )
    assert evidence.option_words == (
        *("--probe", "--assignor", "range", "--client-log", "a.log", "--client-log", "b.log"),
        *("--inventory", "pods.yaml", "--log-timezone", "UTC"),
    )


@pytest.mark.parametrize(
    "given",
    yaml.safe_load((Path(__file__).parents[1] / "data/secrets_in_arguments.yaml").read_text()),
    ids=" ".join,
)
@pytest.mark.parametrize("command", ["inspect", "plan-upgrade", "simulate"])
def test_a_secret_in_the_wrong_place_reaches_neither_screen_nor_file(
    command: str, given: tuple[str, ...], folder: Path, group: Make, capsys: Captured
) -> None:
    saved = files.save_snapshot(group(), folder)
    more = {"plan-upgrade": ["--out", "plan.yaml"], "simulate": ["--assignor", "range"]}
    words = [command, "--snapshot", saved.name, *more.get(command, []), *given]
    assert app.run(words) in (1, 2)
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert err.count("\n") == 1
    assert not (folder / "plan.yaml").exists()


CLIENT_LOG = Path(__file__).parents[1] / "data" / "client_logs" / "java-4.1.1-joined.log"
PLAN = "plans/a.yaml"
Keep = Callable[..., Said]


@pytest.fixture
def keep(here: Path, live: Live, rebal: Rebal) -> Keep:
    """Make a plan of the live group, kept in plans/a.yaml."""
    live.show(look(0, pods(1, 1, list=["range"])))
    for folder in ("logs", "plans"):
        Path(folder).mkdir()
    Path("logs/a.log").write_bytes(CLIENT_LOG.read_bytes())
    return lambda *words: rebal("plan-upgrade", "checkout", *words, "--out", PLAN)


def test_verify_reads_a_group_with_its_plans_options(live: Live, keep: Keep, rebal: Rebal) -> None:
    Path("c.properties").write_text("security.protocol=SSL\n")
    options = ["-b", "kafka-1:9092", "--command-config", "c.properties", "--timeout", "4"]
    options += ["-X", "ssl.endpoint.identification.algorithm=", "--probe", "--assignor", "sticky"]
    said = keep(*options, "--client-log", "logs", "--log-timezone", "Asia/Tokyo")
    assert "next:  rebal verify plans/a.yaml\n" in said.out
    said = rebal("verify", PLAN, code=4)
    assert "\n            rebal verify plans/a.yaml\n" in said.out
    (made, again), (read, read_again) = live.connections, live.asked
    assert (made, read) == (again, read_again)
    assert (again.bootstrap, again.protocol, again.timeout_ms) == ("kafka-1:9092", "SSL", 4000)
    assert again.verify_hostname is False
    assert read == (["checkout"], {"probe": True, "assignors": ("sticky",)})
    assert "--client-log" in said.err, "its readers ran"


def test_verify_finds_the_plans_log_files_from_another_folder(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("-b", "kafka-1:9092", "--client-log", "logs/a.log")
    monkeypatch.chdir("plans")
    assert "shows no start of a member" in rebal("verify", "a.yaml", code=4).err
    Path("../logs/a.log").unlink()
    assert "../logs/a.log" in rebal("verify", "a.yaml", code=1).err, "a file that is gone is named"


def test_an_option_given_to_verify_replaces_the_one_in_the_plan(
    live: Live, keep: Keep, rebal: Rebal
) -> None:
    kept = ["-b", "kafka-1:9092", "-X", "security.protocol=SSL", "--probe", "--assignor", "sticky"]
    keep(*kept, "--client-log", "logs")
    Path("new.log").write_bytes(CLIENT_LOG.read_bytes())
    again = ["-b", "kafka-2:9092", "--client-log", "new.log"]
    said = rebal("verify", PLAN, *again, "--expect-members", "2", code=4)
    assert "given again, in place of what the plan keeps: -b, --client-log." in said.err
    config, (_, more) = live.connections[1], live.asked[1]
    assert (config.bootstrap, config.protocol, more["probe"]) == ("kafka-2:9092", "SSL", True)
    typed = f"rebal verify plans/a.yaml {shlex.join(again)} --expect-members 2"
    assert f"\n            {typed}\n" in said.out
    # An added setting keeps the plan's brokers; a setting that names brokers replaces them.
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
    # `diff` lacks some of these options, and reads no value of theirs as a group.
    rebal("diff", PLAN)
    assert (live.connections[-1], live.asked[-1][0]) == (live.connections[0], ["checkout"])


def test_a_plan_keeps_no_secret_and_asks_for_it_in_a_variable(
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


def test_a_plan_made_with_rebal_bootstrap_needs_it_again_or_named_brokers(
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


def test_verify_of_a_plan_from_a_snapshot_reads_it_until_a_broker_is_named(
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


def test_a_client_log_from_stdin_is_not_kept_in_the_plan(
    live: Live, keep: Keep, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", CLIENT_LOG.open())
    said = keep("-b", "kafka-1:9092", "--client-log", "-")
    assert "next:  rebal verify plans/a.yaml --client-log -\n" in said.out
    assert "pipe the log into it again" in said.err
    rebal("verify", PLAN, code=4)
