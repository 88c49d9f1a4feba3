"""`rebal doctor` as it is typed, over reports as the inspector makes them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rebal.groups.model import Tri
from rebal.inspectors.connection.config import ClusterConfig, Protocol
from rebal.inspectors.connection.managed import SERVICES
from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow, acl
from tests.cli.conftest import Rebal

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
def test_a_grant_names_a_login_where_the_listener_asks_for_one(
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


def test_an_accepted_login_is_told_on_stdout_alone(examined: Examined, rebal: Rebal) -> None:
    """The rows, and one grant for what two of them lack, are on the kept screen."""
    examined(*ROWS)
    out, err = rebal("doctor", "checkout", "-b", "kafka-1:9092")
    assert err == ""
    assert "profiles    none: there is no no/config.yaml" in out
    assert out.endswith("\nnext:  rebal inspect checkout --probe -b kafka-1:9092\n")


def test_rejected_login_is_a_failure(examined: Examined, rebal: Rebal) -> None:
    examined(row("login", Tri.NO, "wrong password"), ROWS[1])
    said = rebal("doctor", "-b", "h:1", code=1)
    assert "next:" not in said.out, "no other command would log in"


def test_settings_are_named_by_their_source_without_their_values(
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
def test_managed_service_is_guessed_by_name(
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


def test_the_request_log_is_switched_on_and_off_by_whole_commands(
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


def test_no_request_log_command_without_a_coordinator_or_on_a_managed_service(
    examined: Examined, rebal: Rebal
) -> None:
    examined(*ROWS)
    assert "kafka-configs.sh" not in rebal("doctor", "-b", "kafka-1:9092").out
    examined(*ROWS, coordinator=7)
    said = rebal("doctor", "checkout", "-b", "b-1.x.kafka.eu-west-1.amazonaws.com:9092")
    assert "kafka-configs.sh" not in said.out
