"""The process and the frame of the command line: what loads, Ctrl-C, streams, exit codes."""

import os
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from rebal.cli import app, forked
from rebal.cli.errors import UsageError

ENTRY = "import sys; from rebal.cli.entry import main; main(sys.argv[1:])"
STOPPED = "rebal: stopped.\n"
# SIGINT at the import with the number in argv[1], counted from the entry on.
AT_IMPORT = """
import os, signal, sys
from rebal.cli import entry
left = int(sys.argv[1])
def hook(event, _):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
entry.main(sys.argv[2:])
"""


def rebal(*args: str, code: str = ENTRY, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], check=False, text=True, timeout=60, **more
    )


def shell(line: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `rebal` is the command; `"$@"` are the arguments."""
    function = f"rebal() {{ {sys.executable} -c '{ENTRY}' \"$@\"; }}\n"
    return subprocess.run(
        ["bash", "-c", function + line, "bash", *args],
        capture_output=True, check=False, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 10, 40, 160])
def test_ctrl_c_during_imports_prints_one_line_and_exits_130(number: int, saved: str) -> None:
    done = rebal(
        str(number), "plan-upgrade", "--snapshot", saved, code=AT_IMPORT, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", STOPPED)


def test_a_command_that_was_started_to_ignore_ctrl_c_ignores_it(saved: str) -> None:
    done = shell("trap '' INT; rebal inspect --snapshot \"$1\" & kill -INT $!; wait $!", saved)
    assert (done.returncode, done.stderr) == (0, "")


COMMANDS = [
    ["--help"],
    ["inspect", "--snapshot", "FILE"],
    ["plan-upgrade", "--snapshot", "FILE", "-o", "json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_stdout_that_cannot_be_written_is_reported_and_exits_1(
    command: list[str], saved: str
) -> None:
    args = [saved if word == "FILE" else word for word in command]
    for redirection, why in ((">/dev/full", "no space left on device"), (">&-", "it is closed")):
        done = shell(f'rebal "$@" {redirection}', *args)
        said = f"rebal: cannot write to stdout: {why}; what was printed is not complete.\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_closed_the_pipe_is_no_error(command: list[str], saved: str) -> None:
    args = [saved if word == "FILE" else word for word in command]
    piped = shell('rebal "$@" | true; exit ${PIPESTATUS[0]}', *args)
    assert (piped.returncode, piped.stderr) == (shell('rebal "$@"', *args).returncode, "")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "0>&- 2>&-"])
def test_a_stderr_that_cannot_be_written_changes_neither_data_nor_exit_code(
    redirection: str, saved: str
) -> None:
    usual = shell('rebal inspect --snapshot "$1" -o json', saved)
    assert usual.stdout
    done = shell(f'rebal inspect --snapshot "$1" -o json {redirection}', saved)
    assert (done.returncode, done.stdout) == (usual.returncode, usual.stdout)
    assert shell(f"rebal {redirection}").returncode == 2
    assert shell(f"rebal inspect --snapshot no.yaml {redirection}").stdout == ""


def test_a_plan_file_gets_no_screen_output_if_stdout_is_closed(saved: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    done = shell('rebal plan-upgrade --snapshot "$1" --out "$2" >&- 2>&-', saved, str(plan))
    assert done.returncode == 1
    assert plan.read_text().startswith("schema: rebal.plan/1")
    assert plan.read_text().endswith("\n...\n")


def test_the_process_exits_without_a_garbage_collection(saved: str) -> None:
    code = (
        "import atexit, gc\natexit.register(lambda: print(len(gc.get_objects()) < 1000))\n" + ENTRY
    )
    done = rebal("inspect", "--snapshot", saved, code=code, capture_output=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "True")


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
def test_command_help_imports_no_planner_no_reader_and_no_renderer(words: list[str]) -> None:
    text, loaded = helped(*words)
    assert text.startswith(f"Usage: rebal {' '.join(words)}")
    assert not loaded & {"rich.console", "rebal.planner.paths", "rebal.planner.rules"}
    assert not loaded & {"rebal.groups.evidence.merge", "rebal.inspectors.kafka.read", "pyspark"}


def test_version_prints_the_installed_one_and_rebal_alone_prints_help_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"rebal {version('rebal')}\n"
    assert app.run([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: rebal" in err


def test_an_internal_error_asks_for_a_report_and_rebal_debug_raises_it(
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
def test_ctrl_c_while_a_broker_does_not_answer_exits_130(command: str) -> None:
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


@pytest.mark.parametrize("processors", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_forked_workers_return_results_in_order(
    processors: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "_processors", lambda: processors)
    parent = os.getpid()
    found = forked.mapped(lambda number: (number * number, os.getpid()), range(count))
    assert [square for square, _ in found] == [number * number for number in range(count)]
    workers = {pid for _, pid in found}
    assert len(workers) <= min(processors, count)
    assert (parent in workers) is (min(processors, count) == 1)


def test_a_forked_childs_error_is_raised_in_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_processors", lambda: 2)

    def work(number: int) -> int:
        if number == 5:
            raise UsageError("five")
        return number

    with pytest.raises(UsageError, match="five"):
        forked.mapped(work, range(8))


def test_the_parent_does_the_work_of_a_crashed_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_processors", lambda: 3)
    parent = os.getpid()

    def work(number: int) -> int:
        if number == 4 and os.getpid() != parent:
            os._exit(9)
        return number

    assert forked.mapped(work, range(9)) == list(range(9))
