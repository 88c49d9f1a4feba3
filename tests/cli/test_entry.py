"""The process: Ctrl-C at any moment, and standard streams that are closed, full or not read."""

import subprocess
import sys
from pathlib import Path

import pytest

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
def test_ctrl_c_while_modules_are_imported_is_one_line_and_130(number: int, saved: str) -> None:
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
def test_a_stdout_that_cannot_be_written_is_one_sentence_and_exit_1(
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


def test_a_closed_stdout_lends_its_number_to_no_file(saved: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    done = shell('rebal plan-upgrade --snapshot "$1" --out "$2" >&- 2>&-', saved, str(plan))
    assert done.returncode == 1
    assert plan.read_text().startswith("schema: rebal.plan/1")
    assert plan.read_text().endswith("\n...\n")


def test_the_end_of_the_process_searches_no_garbage(saved: str) -> None:
    code = (
        "import atexit, gc\natexit.register(lambda: print(len(gc.get_objects()) < 1000))\n" + ENTRY
    )
    done = rebal("inspect", "--snapshot", saved, code=code, capture_output=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "True")
