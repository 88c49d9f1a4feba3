"""`rebal groups` and `rebal doctor` as they are typed."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rebal.cli import output, overview, sources
from rebal.cli.overview import Overview, changes, overview_of
from rebal.cli.render.documents import failures_of
from rebal.cli.render.overview import headline, overview_view
from rebal.groups.model import GroupSnapshot, GroupState, GroupType, Member, Tri
from rebal.inspectors.connection.config import ClusterConfig, Protocol
from rebal.inspectors.connection.managed import SERVICES
from rebal.inspectors.kafka import read as live
from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow, acl
from rebal.inspectors.kafka.listing import GroupFailure
from rebal.planner.commands import Given
from tests.cli.conftest import Rebal, exact, member

GIVEN = Given(connection=("-b", "kafka-1:9092"))
Make = Callable[..., GroupSnapshot]
HIDDEN = GroupFailure(
    group_id="hidden", kind="authorization", message="hidden: no right to describe it."
)


def finished() -> tuple[Member, ...]:
    return (member(1, exact("cooperative-sticky"), "0-11"),)


@pytest.fixture
def cluster(group: Make, librdkafka: tuple[Member, ...]) -> list[GroupSnapshot]:
    """Groups in no order: two ready, one moving, one done, two blocked, one of KIP-848."""
    return [
        group(group_id="ready-10"),
        group(group_id="done", members=finished(), assignor="cooperative-sticky"),
        group(group_id="ready-9"),
        group(group_id="moving", state=GroupState.PREPARING_REBALANCE),
        group(group_id="stuck-b", members=librdkafka),
        group(group_id="left", state=GroupState.EMPTY, assignor=None, members=(), lag=()),
        group(group_id="new", type=GroupType.CONSUMER, assignor="uniform"),
        group(group_id="stuck-a", members=librdkafka),
    ]


@pytest.fixture
def asked(cluster: list[GroupSnapshot], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The patterns that were asked for; the reader answers with `cluster` and one failure."""
    patterns: list[Any] = []

    def survey(config: Any, *, match: str | None) -> live.Survey:
        patterns.append(match)
        return live.Survey(list(cluster), [HIDDEN] if match is None else [], ("a note",))

    monkeypatch.setattr(live, "survey", survey)
    return patterns


def made(snapshots: list[GroupSnapshot], *failures: GroupFailure) -> Overview:
    return overview_of(
        snapshots, failures_of(failures), (), to="cooperative", fail_on="block", exit_zero=False
    )


@pytest.mark.usefixtures("asked")
def test_groups_are_sorted_by_verdict_and_then_in_natural_order(rebal: Rebal) -> None:
    printed = rebal("groups", "-b", "kafka-1:9092", code=1)
    lines = printed.out.splitlines()
    assert lines[0] == "8 groups: 2 blocked, 2 unproven, 2 ready, 2 done · 1 not read"
    assert lines[2] == "not read    hidden: no right to describe it."
    assert [line.split()[:2] for line in lines[5:13]] == [
        ["blocked", "stuck-a"],
        ["blocked", "stuck-b"],
        ["unproven", "left"],
        ["unproven", "moving"],
        ["ready", "ready-9"],
        ["ready", "ready-10"],
        ["done", "done"],
        ["done", "new"],
    ]
    assert lines[-1] == "next:  rebal plan-upgrade stuck-a -b kafka-1:9092"
    assert printed.err == "rebal: a note\n"


def test_rebal_groups_shows_how_each_group_runs(asked: list[Any], rebal: Rebal) -> None:
    body = rebal("groups", "-b", "kafka-1:9092", "--match", ".*", "-o", "json", code=3).body
    keys = ("state", "type", "protocol", "assignor", "members", "lag", "verdict", "exit_code")
    shown = {line["group_id"]: tuple(line[key] for key in keys) for line in body["groups"]}
    assert shown["ready-9"] == ("Stable", "classic", "EAGER", "range", 3, 66, "ready", 0)
    assert shown["done"][2:4] == ("COOPERATIVE", "cooperative-sticky")
    assert shown["done"][6:] == ("done", 0)
    assert shown["left"][2:6] == ("none", None, 0, None)
    assert shown["new"][2:] == ("KIP-848", "uniform", 3, 66, "done", 0)
    assert shown["stuck-a"][6:] == ("blocked", 3)
    assert shown["moving"][6:] == ("unproven", 4)
    assert body["exit_code"] == 3
    assert asked == [".*"]


@pytest.mark.usefixtures("asked")
def test_the_verdict_of_a_group_depends_on_the_goal(rebal: Rebal) -> None:
    words = ["groups", "-b", "k:1", "--match", "x", "-o", "json", "--exit-zero", "--to"]
    lines = {line["group_id"]: line for line in rebal(*words, "consumer").body["groups"]}
    assert lines["done"]["to"] == "KIP-848"
    assert lines["done"]["verdict"] != "done"
    rebal(*words, "nonsense", code=2)


def test_groups_that_do_not_fit_on_the_screen_are_counted(cluster: list[GroupSnapshot]) -> None:
    text = output.render(overview_view(made(cluster), GIVEN, rows=3), width=100)
    assert "and 5 more" in text
    assert "ready-9" not in text
    assert headline(made([])) == "0 groups: only those that this user may describe are listed"


def test_changes_between_looks_name_the_group(cluster: list[GroupSnapshot], group: Make) -> None:
    before = made(cluster)
    after = made(
        [
            *(one for one in cluster if one.group.group_id not in ("ready-10", "moving", "left")),
            group(group_id="moving"),
            group(group_id="ready-10", members=finished(), assignor="cooperative-sticky"),
            group(group_id="fresh"),
        ],
        HIDDEN,
    )
    assert list(changes(before, after)) == [
        "not read: hidden: no right to describe it.",
        "fresh: is new: ready, Stable, EAGER, 3 members",
        "left: is no longer listed",
        "moving: unproven → ready, PreparingRebalance → Stable, cannot tell → EAGER",
        "ready-10: ready → done, EAGER → COOPERATIVE, range → cooperative-sticky, 3 → 1 member",
    ]
    unread, read = made([], HIDDEN), made([group(group_id="hidden")])
    (back,) = changes(unread, read)
    assert back == "hidden: is read again: ready, Stable, EAGER, 3 members"


def test_growing_lag_alone_is_no_change(group: Make) -> None:
    assert list(changes(made([group()]), made([group(lag=())]))) == []


def test_a_failed_look_keeps_the_groups_and_shows_the_error(group: Make) -> None:
    before = made([group()])
    after = overview.blinded(before, "no broker", timedelta(seconds=5))
    assert after.groups == before.groups
    assert after.notes[0].endswith("Z: no broker")


@pytest.mark.usefixtures("asked")
def test_groups_watch_without_a_terminal_prints_all_groups_and_then_changes(
    cluster: list[GroupSnapshot], group: Make, rebal: Rebal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_: float) -> None:
        cluster[3] = group(group_id="moving")

    monkeypatch.setattr(sources.watch, "__kwdefaults__", {
        **(sources.watch.__kwdefaults__ or {}), "sleep": sleep, "clock": iter(range(9)).__next__,
    })  # fmt: skip
    words = ["groups", "-b", "k:1", "--match", ".*", "--for", "2", "--watch", "1s"]
    lines = rebal(*words, code=3).out.splitlines()
    assert lines[0].startswith("8 groups")
    assert lines[-1].endswith(
        "moving: unproven → ready, PreparingRebalance → Stable, cannot tell → EAGER"
    )


Examined = Callable[..., None]
ACL = (
    "kafka-acls.sh --bootstrap-server kafka-1:9092 --add --allow-principal User:alice "
    "--operation Read --group checkout"
)


def row(source: str, available: Tri, why: str, grant: str = "") -> DoctorRow:
    return DoctorRow(
        source=source, available=available, why=why, adds=f"what {source} adds", grant=grant
    )


ROWS = (
    row("login", Tri.YES, "logged in"),
    row("probe", Tri.NO, "no READ on the group", ACL),
    row("twin", Tri.NO, "no READ either", ACL),
    row("offsets topic", Tri.CANNOT_TELL, "the broker does not tell"),
)


@pytest.mark.parametrize(
    ("protocol", "login"),
    [("SASL_PLAINTEXT", "--command-config ADMIN.properties "), ("PLAINTEXT", "")],
)
def test_the_kafka_acls_command_names_a_login_file_if_the_listener_uses_sasl(
    protocol: Protocol, login: str
) -> None:
    config = ClusterConfig(bootstrap="kafka-1:9092", protocol=protocol, username="alice")
    user = "alice" if login else "ANONYMOUS"
    assert acl(config, "Read", "--group", "checkout") == (
        f"kafka-acls.sh --bootstrap-server kafka-1:9092 {login}--add "
        f"--allow-principal User:{user} --operation Read --group checkout"
    )


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examined:
    """Have the inspector report these rows."""

    def start(*rows: DoctorRow, coordinator: int | None = None) -> None:
        def examine(config: object, group: str | None) -> DoctorReport:
            return DoctorReport(
                bootstrap="kafka-1:9092",
                principal="User:alice",
                group_id=group,
                rows=rows,
                coordinator_id=coordinator,
            )

        monkeypatch.setattr("rebal.inspectors.kafka.doctor.examine", examine)
        for name in [name for name in os.environ if name.startswith("REBAL_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("REBAL_CONFIG", "no/config.yaml")

    return start


def test_doctor_reports_an_accepted_login_on_stdout_only(examined: Examined, rebal: Rebal) -> None:
    """The rows and their grant are on the kept screen `doctor` of test_screens.py."""
    examined(*ROWS)
    out, err = rebal("doctor", "checkout", "-b", "kafka-1:9092")
    assert err == ""
    assert "profiles    none: there is no no/config.yaml" in out
    assert out.endswith("\nnext:  rebal inspect checkout --probe -b kafka-1:9092\n")


def test_doctor_exits_1_after_a_rejected_login(examined: Examined, rebal: Rebal) -> None:
    examined(row("login", Tri.NO, "wrong password"), ROWS[1])
    said = rebal("doctor", "-b", "h:1", code=1)
    assert "next:" not in said.out, "no other command would log in"


def test_doctor_names_the_source_of_each_setting_without_its_value(
    examined: Examined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebal: Rebal
) -> None:
    examined(*ROWS)
    properties = tmp_path / "prod.properties"
    properties.write_text("sasl.mechanism=PLAIN\nsecurity.protocol=SASL_PLAINTEXT\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        "profiles:\n"
        f"  prod: {{bootstrap: 'p:1', command-config: {properties}}}\n"
        "  lab: {a.b: c}\n"
    )
    monkeypatch.setenv("REBAL_CONFIG", str(config))
    monkeypatch.setenv("REBAL_X_SASL_PASSWORD", "s3cret-in-env")
    words = ["doctor", "--profile", "prod", "-X", "sasl.username=s3cret-name"]
    lines = rebal(*words, "--wide").out.splitlines()
    assert lines[1] == (
        f"settings    -X sasl.username, profile prod of {config}, {properties} (named "
        "by the profile prod), REBAL_CONFIG, REBAL_X_SASL_PASSWORD"
    )
    assert lines[2] == f"profiles    prod, lab in {config}"
    assert "s3cret-in-env" not in "\n".join(lines)
    settings = rebal(*words, "-o", "json").body["settings"]
    assert (settings["profile"], settings["properties"]) == ("prod", str(properties))
    assert "s3cret" not in str(settings)
    said = rebal("doctor", "-b", "k:1").out
    assert said.startswith("no group named on kafka-1:9092")
    assert f"prod, lab in {config}; none was read (--profile NAME)" in said


@pytest.mark.parametrize(
    ("address", "service"),
    [
        ("b-1.shop.123z8u.c2.kafka.us-west-1.amazonaws.com:9096", "Amazon MSK"),
        ("boot-ab.c1.kafka-serverless.eu-west-1.amazonaws.com:9098", "Amazon MSK"),
        ("pkc-12576z.us-west2.gcp.confluent.cloud:9092", "Confluent Cloud"),
        ("KAFKA-shop.aivencloud.com.:21699", "Aiven for Apache Kafka"),
        ("kafka-1:9092", None),
        ("kafka.us-west-1.amazonaws.com.evil.example:9092", None),
        ("notconfluent.cloud:9092", None),
    ],
)
def test_doctor_recognizes_a_managed_service_by_its_host_name(
    address: str, service: str | None, examined: Examined, rebal: Rebal
) -> None:
    examined(*ROWS)
    managed = rebal("doctor", "-b", address, "-o", "json").body["managed"]
    assert (managed and managed["name"]) == service


def test_page_on_managed_kafka_cites_every_source_that_doctor_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "managed-kafka.md").read_text()
    for service in SERVICES:
        assert f"| {service.name} |" in page or f"{service.name} |" in page
        for one in service.allows:
            assert f'"{one.page}"' in page


def test_doctor_prints_whole_commands_that_switch_the_request_log(
    examined: Examined, rebal: Rebal, tmp_path: Path
) -> None:
    examined(*ROWS, coordinator=7)
    file = tmp_path / "admin conf.properties"
    file.write_text("bootstrap.servers=kafka-1:9092\n")
    said = rebal("doctor", "checkout", "-b", "kafka-1:9092", "--command-config", str(file))
    lines = [line.strip() for line in said.out.splitlines()]
    common = (
        f"kafka-configs.sh --bootstrap-server kafka-1:9092 --command-config '{file}' --alter "
        "--entity-type broker-loggers --entity-name 7 "
    )
    on, off = lines.index("# request log on"), lines.index("# request log off")
    assert lines[on + 1] == common + "--add-config kafka.request.logger=DEBUG"
    assert lines[off + 1] == common + "--delete-config kafka.request.logger"


def test_doctor_prints_no_request_log_command_without_a_coordinator_or_on_managed_kafka(
    examined: Examined, rebal: Rebal
) -> None:
    examined(*ROWS)
    assert "kafka-configs.sh" not in rebal("doctor", "-b", "kafka-1:9092").out
    examined(*ROWS, coordinator=7)
    said = rebal("doctor", "checkout", "-b", "b-1.x.kafka.eu-west-1.amazonaws.com:9092")
    assert "kafka-configs.sh" not in said.out
