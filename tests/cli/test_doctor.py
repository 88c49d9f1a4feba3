"""`rebal doctor` as it is typed, over reports as the inspector makes them."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import pytest

from rebal.cli import app
from rebal.groups.model import Tri
from rebal.inspectors.kafka.doctor import DoctorReport, DoctorRow

Said = pytest.CaptureFixture[str]
ACL = (
    "kafka-acls.sh --bootstrap-server kafka-1:9092 --add --allow-principal User:alice "
    "--operation Read --group checkout"
)


def row(source: str, available: Tri, why: str, grant: str = "") -> DoctorRow:
    return DoctorRow(
        source=source, available=available, why=why, adds=f"what {source} adds", grant=grant
    )


ROWS = (
    row("login (kafka-python)", Tri.YES, "logged in"),
    row("login (confluent-kafka)", Tri.NO, "wrong password"),
    row("probe", Tri.NO, "no READ on the group", ACL),
    row("twin", Tri.NO, "no READ either", ACL),
    row("offsets topic", Tri.CANNOT_TELL, "the broker does not tell"),
)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[object, object]]]:
    def start(*rows: DoctorRow) -> list[tuple[object, object]]:
        asked: list[tuple[object, object]] = []

        def examine(config: object, group: str | None) -> DoctorReport:
            asked.append((config, group))
            return DoctorReport(
                bootstrap="kafka-1:9092", principal="User:alice", group_id=group, rows=rows
            )

        monkeypatch.setattr("rebal.inspectors.kafka.doctor.examine", examine)
        return asked

    return start


def test_the_screen_shows_each_source_and_how_to_grant_the_missing_ones(
    examined: Callable[..., object], capsys: Said
) -> None:
    examined(*ROWS)
    assert app.run(["doctor", "checkout", "-b", "kafka-1:9092"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "checkout on kafka-1:9092, as User:alice",
        "",
        "yes          login (kafka-python)  logged in",
        "no           login (confluent-kafka)  wrong password; it would show what "
        "login (confluent-kafka) adds",
        "no           probe  no READ on the group; it would show what probe adds",
        "no           twin  no READ either; it would show what twin adds",
        "cannot tell  offsets topic  the broker does not tell; it would show what "
        "offsets topic adds",
        "",
        "to get what is missing, an administrator runs:",
        "  # probe, twin",
        f"  {ACL}",
        "",
        "next:  rebal inspect checkout --probe -b kafka-1:9092",
    ]


def test_a_line_to_paste_is_never_folded(
    examined: Callable[..., object], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    examined(*ROWS)
    app.run(["doctor", "checkout", "-b", "kafka-1:9092"])
    lines = capsys.readouterr().out.splitlines()
    assert f"  {ACL}" in lines
    assert max(len(line) for line in lines if ACL not in line) <= 60


def test_the_screen_names_no_administrator_when_nothing_is_missing(
    examined: Callable[..., object], capsys: Said
) -> None:
    asked = examined(ROWS[0])
    assert app.run(["doctor", "-b", "kafka-1:9092"]) == 0
    out = capsys.readouterr().out
    assert "administrator" not in out
    assert out.startswith("no group named on kafka-1:9092")
    assert asked[0][1] is None


def test_no_client_that_can_log_in_is_a_failure(
    examined: Callable[..., object], capsys: Said
) -> None:
    examined(row("login (kafka-python)", Tri.NO, "wrong password"), ROWS[1])
    assert app.run(["doctor", "-b", "h:1", "-o", "json"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["schema"] == "rebal.doctor/1"
    assert body["exit_code"] == 1
    assert body["rows"][0] == {
        "source": "login (kafka-python)",
        "available": "no",
        "why": "wrong password",
        "adds": "what login (kafka-python) adds",
        "grant": None,
    }


@pytest.mark.parametrize("form", ["text", "json", "yaml"])
def test_a_hostile_name_shows_as_text(
    form: str, examined: Callable[..., object], hostile: str, capsys: Said
) -> None:
    examined(row(hostile, Tri.NO, hostile, hostile))
    app.run(["doctor", hostile, "-b", "h:1", "-o", form])
    out, _ = capsys.readouterr()
    assert "[red]boss[/red] :boom:" in out
    assert not {c for c in out if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")}
