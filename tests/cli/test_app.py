"""The command line's frame: what loads, what is printed where, and with which exit code."""

import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from rebal.cli import app

HEAVY = (
    "confluent_kafka",
    "kafka",
    "pyspark",
    "rich",
    "yaml",
    "msgspec",
    "numpy",
    "pandas",
    "jinja2",
)


def helped(*words: str) -> tuple[str, set[str]]:
    """Return what `--help` prints in a process of its own, and the modules that are loaded."""
    code = (
        f"import sys\nfrom rebal.cli.app import run\nassert run([*{words}, '--help']) == 0\n"
        "print(*sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_help_loads_no_client_no_renderer_and_no_command() -> None:
    text, loaded = helped()
    assert "rebal.cli.app" in loaded
    assert not loaded & set(HEAVY)
    assert not {name for name in loaded if name.startswith("rebal.cli.commands.")}
    for entry in app.COMMANDS:
        assert entry.name in text
        assert entry.summary in text


@pytest.mark.parametrize("name", ["inspect", "plan-upgrade", "verify", "simulate", "rehearse"])
def test_help_shows_the_own_options_first_and_the_shared_ones_in_panels(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([name, "--help"]) == 0
    own, panels = capsys.readouterr().out.split("\nConnection:\n")
    assert "--bootstrap" not in own
    assert "--snapshot" in own
    assert panels.index("\nEvidence:\n") < panels.index("--client-log")


@pytest.mark.parametrize(
    "words",
    [[entry.name] for entry in app.COMMANDS]
    + [["fleet", entry.name] for entry in app.COMMANDS[-2].under],
    ids=" ".join,
)
def test_the_help_of_a_command_loads_neither_its_work_nor_a_renderer(words: list[str]) -> None:
    text, loaded = helped(*words)
    assert text.startswith(f"Usage: rebal {' '.join(words)}")
    assert not loaded & {"rich.console", "rebal.planner.paths", "rebal.planner.rules"}
    assert not loaded & {"rebal.groups.evidence.merge", "rebal.inspectors.kafka.read", "pyspark"}


def test_version_is_the_installed_one_and_no_command_shows_the_help_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"rebal {version('rebal')}\n"
    assert app.run([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: rebal" in err


def test_a_fault_asks_for_a_report_and_shows_its_traceback_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("rebal.cli.lazy.LazyCommand.make_context", fail)
    assert app.run(["inspect"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ZeroDivisionError" in err
    assert "REBAL_DEBUG=1" in err
    monkeypatch.setenv("REBAL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        app.run(["inspect"])


@pytest.mark.parametrize("command", ["inspect", "doctor", "plan-upgrade"])
def test_ctrl_c_while_a_broker_keeps_silent(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code = "import sys; from rebal.cli.app import main; main(sys.argv[1:])"
        words = [sys.executable, "-c", code, command, "g", "-b", address, "--timeout", "60"]
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with running:
            silent.settimeout(30)
            silent.accept()
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            # Half of the command's own timeout: it does not wait for the answer.
            out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, "", "rebal: stopped.\n")
