"""A client id with rich markup and escape codes shows as text in every output of every command."""

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app
from rebal.cli.files import save_snapshot
from rebal.groups.compact import Partitions
from rebal.groups.model import GroupSnapshot, Topic
from tests.cli.conftest import HOSTILE

WORDS = (
    ["inspect"],
    ["plan-upgrade"],
    ["verify"],
    ["simulate", "--assignor", "cooperative-sticky"],
    ["simulate", "--assignor", "sticky", "--assignor", "uniform", "--remove-member", "FIRST"],
    ["rehearse", "--script", "rolling", "--details"],
)
FORMS = ([], ["--wide"], ["-o", "json"], ["-o", "yaml"])
COMMANDS = [[*words, *form] for words in WORDS for form in FORMS]
COMMANDS += [["plan-upgrade", "-o", "markdown"], ["plan-upgrade", "--details"]]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_hostile_client_id_reaches_no_output_as_control_characters(
    *,
    command: list[str],
    static: bool,
    group: Callable[..., GroupSnapshot],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    members = tuple(
        replace(
            member,
            client_id=f"{HOSTILE}{n}",
            member_id=f"{HOSTILE}{n}-{n}",
            host=HOSTILE,
            instance_id=f"{HOSTILE}{n}" if static else None,
            assignment={f"orders{HOSTILE}": Partitions([n])},
            subscription=replace(member.subscription, topics=(f"orders{HOSTILE}",)),
        )
        for n, member in enumerate(group().members)
    )
    snapshot = group(
        members=members, topics=(Topic(name=f"orders{HOSTILE}", partitions=3),), lag=(),
        group_id=f"g\n{HOSTILE}", notes=(HOSTILE,),
    )  # fmt: skip
    path, plan = str(save_snapshot(snapshot, tmp_path / "s.yaml")), str(tmp_path / "p.yaml")
    if command[0] == "verify":
        app.run(["plan-upgrade", "--snapshot", path, "--out", plan])
    words = [f"{HOSTILE}0" if word == "FIRST" else word for word in command]
    words[1:1] = [plan] if command[0] == "verify" else []
    assert app.run([*words, "--snapshot", path]) in (0, 3, 4)
    out, err = capsys.readouterr()
    hidden = {c for c in out + err if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")}
    assert not hidden
    if "markdown" in command:
        outside = re.sub(r"(`+)[^`].*?\1", "", re.sub(r"(?ms)^```.*?^```$", "", out))
        assert not re.search(r"(?<!\\)\[red\]", outside)
        assert "boss" in out
    else:
        assert "[red]boss[/red] :boom:" in out
