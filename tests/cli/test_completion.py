"""`rebal completion`: the candidates, and what the shells make of them."""

import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from rebal.cli import app, files
from rebal.cli.commands import completion_cmd as completion
from rebal.cli.commands.completion_cmd import Shell
from rebal.cli.commands.simulate_cmd import OF_CONSUMERS
from rebal.groups.clients import assignors, families
from rebal.groups.model import GroupSnapshot
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.kafka import listing
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from rebal.planner.rules import rules

SCRIPTS = Path(app.__file__).parent / "data" / "completion"
REBAL = str(Path(sys.executable).with_name("rebal"))
NAMES = ("checkout", "check-in", "it's $(date) `x`", "a:b", "with space", "evil\x1b[2J")
Make = Callable[..., GroupSnapshot]
Said = pytest.CaptureFixture[str]


def words(line: str) -> list[str]:
    return [one.value for one in completion.candidates(line)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The connections that were asked for their groups."""
    configs: list[Any] = []

    def group_names(config: Any) -> Iterable[str]:
        configs.append(config)
        return NAMES

    monkeypatch.setattr(listing, "group_names", group_names)
    for name in ("REBAL_BOOTSTRAP", "REBAL_PROFILE", "REBAL_COMMAND_CONFIG", "REBAL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    # The import of a Kafka client may take long where other tests run beside this one.
    monkeypatch.setattr(completion, "LIVE_SECONDS", 30)
    return configs


def test_completion_offers_commands_and_their_options() -> None:
    assert words("rebal ") == [entry.name for entry in app.COMMANDS]
    assert words("rebal pl") == ["plan-upgrade"]
    assert words("rebal fleet re") == ["report"]
    assert words("rebal groups --ma") == ["--match"]
    assert words("rebal nonsense ") == []


def test_completion_offers_an_option_once_unless_it_is_repeatable() -> None:
    assert words("rebal inspect --req") == ["--request-log"]
    assert words("rebal inspect --wide --prob") == ["--probe"]
    assert "--snapshot" not in words("rebal plan-upgrade --snapshot x.yaml --")
    assert "--assignor" in words("rebal inspect --assignor range --")
    assert words("rebal inspect -- --pro") == []


def test_completion_offers_the_values_that_an_option_accepts() -> None:
    assert words("rebal inspect -o ") == ["text", "json", "yaml", "sarif", "github"]
    assert words("rebal inspect --output=j") == ["--output=json"]
    goals = ["cooperative", "consumer", "classic", "cooperative-sticky"]
    assert words("rebal plan-upgrade --to c") == goals
    assert words("rebal plan-upgrade g --ignore ") == sorted(rules())
    assert set(words("rebal plan-upgrade --assignor ")) <= set(assignors())
    assert set(OF_CONSUMERS) <= set(words("rebal simulate --assignor "))
    assert words("rebal show --family ") == list(families())
    assert words("rebal schema pla") == ["plan"]
    assert words("rebal completion z") == ["zsh"]


def test_completion_offers_plan_and_snapshot_files_by_content(here: Path, group: Make) -> None:
    (here / "deep").mkdir()
    files.save_snapshot(group(), here / "seen.json")
    (here / "kept.yaml").write_text(dump_plan(make_plan(group())))
    (here / "other.yaml").write_text("a: 1\n")
    assert words("rebal verify ") == ["deep/", "kept.yaml"]
    assert words("rebal show k") == ["kept.yaml"]
    assert words("rebal simulate --snapshot ") == ["deep/", "seen.json"]
    assert words("rebal diff ") == ["deep/", "kept.yaml", "seen.json"]
    assert words("rebal verify deep/") == []
    # The shell completes files by itself where any will do.
    assert words("rebal inspect --client-log ") == []
    assert words("rebal inspect g --client-log a.log ") == []


def test_completion_reads_group_names_from_the_cluster_that_is_typed(asked: list[Any]) -> None:
    assert words("rebal inspect -b kafka-1:9092 -X no-such-key=1 check") == []
    line = "rebal inspect -b kafka-1:9092,kafka-2:9092 -X security.protocol=PLAINTEXT check"
    assert words(line) == ["check-in", "checkout"]
    assert asked[-1].bootstrap == "kafka-1:9092,kafka-2:9092"
    assert words("rebal inspect --bootstrap=k:1 checkout check") == ["check-in"]
    assert words("rebal plan-upgrade -bk:1 check") == ["check-in", "checkout"]
    assert words("rebal doctor -b k:1 a") == ["a:b"]
    # A name that a terminal would act on is not offered.
    assert len(words("rebal inspect -b k:1 ")) == len(NAMES) - 1


def test_completion_reads_group_names_from_the_profiles_or_environments_cluster(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert words("rebal inspect ") == []
    assert asked == []
    config = tmp_path / "config.yaml"
    config.write_text("profiles:\n  prod: {bootstrap: 'p:1'}\n  staging: {bootstrap: 's:1'}\n")
    monkeypatch.setenv("REBAL_CONFIG", str(config))
    assert words("rebal inspect --profile ") == ["prod", "staging"]
    assert words("rebal inspect --profile staging check") == ["check-in", "checkout"]
    monkeypatch.setenv("REBAL_BOOTSTRAP", "env:1")
    assert words("rebal verify p.yaml ") == []
    assert words("rebal simulate check") == ["check-in", "checkout"]
    assert [one.bootstrap for one in asked] == ["s:1", "env:1"]


@pytest.mark.parametrize("fault", [ConnectError("no", "unreachable"), OSError("no"), None])
def test_completion_prints_nothing_if_the_cluster_fails_or_does_not_answer(
    fault: Exception | None, asked: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    never = threading.Event()

    def fail(_: Any) -> Iterable[str]:
        if fault is not None:
            raise fault
        never.wait(60)
        return NAMES

    monkeypatch.setattr(listing, "group_names", fail)
    monkeypatch.setattr(completion, "LIVE_SECONDS", 0.05)
    assert app.run(["completion", "bash", "--complete", "rebal inspect -b k:1 "]) == 0
    never.set()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "line", ["", "rebal", "rebal 'open", 'rebal inspect "', "rebal inspect \\", "rebal --", "x | "]
)
def test_completion_of_a_malformed_command_line_does_not_fail(line: str) -> None:
    assert isinstance(completion.candidates(line), list)


def test_completion_matches_a_quoted_or_escaped_group_name(asked: list[Any]) -> None:
    assert words("rebal inspect -b k:1 'it'\\''s") == ["it's $(date) `x`"]
    assert words('rebal inspect -b k:1 "with sp') == ["with space"]
    assert words("rebal inspect -b k:1 with\\ sp") == ["with space"]


@pytest.mark.parametrize("shell", get_args(Shell))
def test_completion_prints_a_valid_script_for_each_shell(shell: str, capsys: Said) -> None:
    assert app.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == (SCRIPTS / f"rebal.{shell}").read_text()
    assert f"completion {shell} --complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n", SCRIPTS / f"rebal.{shell}"], check=True)


def bash(line: str, path: Path) -> list[str]:
    """Return what bash would offer at the end of `line`, with its own splitting into words."""
    breaks = line
    for char in ":=":
        breaks = breaks.replace(char, f" {char} ")
    script = (
        f"source {shlex.quote(str(SCRIPTS / 'rebal.bash'))}; compopt() {{ :; }}\n"
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}\n"
        f"_rebal_completion rebal; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True, text=True, check=True, env={"PATH": f"{path}:/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A `rebal` that offers hostile names to whoever asks."""
    made = tmp_path / "rebal"
    made.write_text(
        "#!/bin/sh\nprintf '%s\\t%s\\n' 'orders:eu' 'a group' 'orders:us' '' "
        "'$(touch pwned)' '' '*' '' \"it's; ls\" ''\n"
    )
    made.chmod(0o755)
    return tmp_path


def test_bash_completion_quotes_group_names_and_keeps_the_text_before_a_colon(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fake)
    assert bash("rebal inspect ", fake) == [
        "orders:eu", "orders:us", r"\$\(touch\ pwned\)", r"\*", r"it\'s\;\ ls",
    ]  # fmt: skip
    assert bash("rebal inspect -b kafka:9092 orders:", fake)[:2] == ["eu", "us"]
    assert not (fake / "pwned").exists()
    assert bash("rebal inspect --snapsh", Path(REBAL).parent) == ["--snapshot"]
