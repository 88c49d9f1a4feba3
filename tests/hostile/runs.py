"""Hostile runs: `draw` makes one from a seed, `Range.run` carries it out in this process.

A run has hostile option values, files, environment and broker answers. It must end with an exit
code and sentences: no exception that is not rebal's own, no secret, within time and memory.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from rebal.cli import app
from rebal.cli.lazy import LazyCommand
from rebal.inspectors import files
from rebal.inspectors.connection import auth, settings
from rebal.inspectors.fleet import job
from rebal.inspectors.fleet.lake import run as lake_run
from rebal.inspectors.fleet.sources.segments import read_partition
from rebal.inspectors.fleet.sources.source import blocks, share_out
from rebal.inspectors.fleet.spark.session import SparkError
from tests.hostile.ground import KINDS, LAKE, SECRET, WAYS, WrongBroker, make_ground

MOST_SECONDS = 10
MOST_KILOBYTES = 300 << 10
ALONE_KILOBYTES = 100 << 10
"""The memory of a process that has imported rebal and has carried nothing out."""
_TEXTS = (
    "", " ", "-", "--", "=", "a=", "=b", "a=b", ",", "g", "checkout", "range", "0", "-1", "1",
    "nan", "inf", "1e400", "9" * 400, "9" * 5000, "\udcff", "g\ud800", "a\udc80=b", "\n",
    "\x1b[2J", "\u202e", "é" * 40_000, "(", "[a-", "(?P<", "a{99999}", "(a*)*b", "*", "%s", "{}",
    "${HOME}", "../..", "1m", "1e9d", "٣m", "UTC", "../UTC", "+25:00", "file:///", "s3://b/p",
    "http://[", "all", "cooperative", "consumer", "eager", "cooperative-sticky", "java",
    "client-id=a:range", "client-id=a:", "instance-id=:", "RB102", "orders=3", "orders=-1",
    "orders=999999999", "crash", "restart", "1.5", "²", "١", "99999999999",
)  # fmt: skip
_SERVERS = (
    "127.0.0.1:1", "[::1", "::1:1", "h:99999", "h:²", "a..b:1", "x" * 70 + ":1", "\udcff:1",
    f"user:{SECRET}@127.0.0.1:1", f"SSL://u:{SECRET}@h", ",", "h:1,,", ".:1", "é:1", "*:1",
)  # fmt: skip
_SETTINGS = (
    SECRET, f"{SECRET}=", f"{SECRET}==", f"sasl.password={SECRET}", f"sasl.pasword={SECRET}",
    f"sasl.password=${{{SECRET}}}", f"sasl.jaas.config={SECRET}", "security.protocol=SASL_SSL",
    "security.protocol=SSL", "security.protocol=\udcff", "sasl.mechanism=PLAIN",
    "sasl.mechanism=OAUTHBEARER", f"bootstrap.servers=u:{SECRET}@h:1", "bootstrap.servers=h:0",
    "ssl.ca.location=/dev/zero", "ssl.ca.location=fifo.log", "ssl.keystore.location=sparse.log",
    "ssl.ca.pem=x", f"ssl.key.password={SECRET}", "ssl.ca.location=nothing", "a=b", "=",
    "ssl.keystore.type=PKCS12", "sasl.username=\udcff",
    f"sasl.oauthbearer.token.endpoint.url=https://u:{SECRET}@h/",
    "sasl.oauthbearer.token.endpoint.url=http://[",
    "sasl.oauthbearer.token.endpoint.url=file:///dev/zero",
    "sasl.oauthbearer.token.endpoint.url=http://h:x/",
    f"sasl.oauthbearer.client.credentials.client.secret={SECRET}",
    "sasl.oauthbearer.client.credentials.client.id=i",
    "ssl.truststore.type=PEM", "ssl.keystore.type=JKS", f"ssl.keystore.type={SECRET}",
    f"ssl.keystore.location={SECRET}", f"sasl.oauthbearer.token.endpoint.url=file:///{SECRET}",
    f"sasl.oauthbearer.token.endpoint.url=http://127.0.0.1:1/{SECRET}",
    f"sasl.jaas.config=a.{SECRET} required;", "client.id=i", f"AWS_REGION={SECRET}",
    f"AWS_ENDPOINT_URL=http://127.0.0.1:1/{SECRET}", f"aws_endpoint={SECRET}",
    f"AWS_ALLOW_HTTP={SECRET}", f"conditional_put={SECRET}", f"spark.driver.memory={SECRET}",
)  # fmt: skip
# Each setting that a secret can be typed into by mistake. A broker's address is not one of them.
_KEYS = sorted(
    {*settings.KNOWN, *settings.IGNORED, *settings.REFUSED, *auth.CALLBACK_CLASSES}
    - {"bootstrap.servers"}
)
_LISTEN = ("h:99999", "\udcff:1", "", ":", "256.1.1.1:1", "[::", "é..:1", "nothing:1", "1:2:3")
_PARTS = (
    b"", b"\xff", b'"\\ud800"', b": ", b"- ", b"\n", b"~", b"-1", b"null", b"1e999", b"!!int x",
)  # fmt: skip
_LASTS = ("--every", "--for", "--listen", "--seed", "--runs")
_VARIABLES = (
    "REBAL_BOOTSTRAP", "REBAL_PROFILE", "REBAL_CONFIG", "REBAL_COMMAND_CONFIG", "REBAL_SNAPSHOT",
    "REBAL_X_SASL_PASSWORD", "REBAL_X_", "REBAL_X_BOOTSTRAP_SERVERS", "REBAL_X_NOTHING",
    "XDG_CONFIG_HOME", "COLUMNS", "TERM", "NO_COLOR", "TZ", "HOME", "REBAL_X_SECURITY_PROTOCOL",
)  # fmt: skip
# Command lines that get far, to which hostile options are added. A word in capitals is a good or a
# damaged file of this kind (`ground.KINDS`), LIVE is the wrong broker.
_LINES = Path(__file__).parents[1] / "data" / "hostile_lines.txt"
WHOLE = tuple(line.split(" ") for line in _LINES.read_text().splitlines())
_COMPLETED = (
    "rebal inspect ", "rebal inspect -b LIVE ", "rebal show ", "rebal verify PLAN --step ",
    "rebal inspect --profile ", "rebal simulate --snapshot SNAPSHOT --remove-member ",
    "rebal plan-upgrade --to ", "rebal explain RB", "rebal fleet report LAKE --group ",
    "rebal 'é\udcff",
)  # fmt: skip
_KEPT_OUT = {"JAVA_HOME": "/nothing", "PATH": "/nothing", "SPARK_HOME": ""}
_JOURNAL = "plan.yaml.journal.jsonl"


@dataclass
class Run:
    """One command with what surrounds it; `damage` are files that are written before it."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)
    damage: dict[str, bytes] = field(default_factory=dict)
    way: str = "honest"
    after: int = 0
    seed: int = 0


@dataclass
class End:
    """The end of a run: `fault` says what must not be, and is empty for a good one."""

    code: int | None
    fault: str
    kilobytes: int
    said: str = ""


@cache
def commands() -> dict[tuple[str, ...], list[Any]]:
    """Every command with its parameters."""

    def walk(entries: Any, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for entry in entries:
            if entry.under:
                yield from walk(entry.under, (*before, entry.name))
            else:
                yield (*before, entry.name), LazyCommand(entry).load().params

    return dict(walk(app.COMMANDS, ()))


def draw(seed: int, place: Range) -> Run:
    """Make the run of this seed: a whole command line, or a command with any parameters."""
    drawn = random.Random(seed)
    run = Run([], way=drawn.choice(WAYS), after=drawn.randrange(16), seed=seed)
    if drawn.random() < 0.65:
        whole = drawn.choice(WHOLE)
        command = tuple(whole[: 2 if whole[0] == "fleet" else 1])
        more = drawn.choice((0, 0, 0, 0, 1, 2))
        # One file is damaged, so that the other ones are read.
        damaged = drawn.choice([word for word in whole if word.isupper()] or [""])
        run.words = [_filled(word, run, drawn, place, word == damaged) for word in whole]
    else:
        # The demo walks through everything at each run, `groups` waits for a broker in nearly each.
        weights = {
            ("demo",): 0.01, ("schema",): 0.3, ("explain",): 0.3,
            ("groups",): 0.4, ("plan-upgrade",): 0.6,
        }  # fmt: skip
        (command,) = drawn.choices(list(commands()), [weights.get(name, 1) for name in commands()])
        more = drawn.choice((0, 1, 1, 2, 3, 5))
        run.words = [*command]
        for param in commands()[command]:
            if param.param_type_name == "argument" and drawn.random() < 0.9:
                run.words += _typed(param, drawn, place.places)
    params = [param for param in commands()[command] if param.name != "help"]
    for param in drawn.sample(params, min(len(params), more)):
        run.words += _typed(param, drawn, place.places)
    if drawn.random() < 0.05:
        at, text = drawn.randrange(len(run.words) + 1), drawn.choice(_TEXTS)
        # After `--`, the short timeout below would be a group.
        run.words.insert(at, text if text != "--" else "---")
    if any("-b" in param.opts for param in params):
        run.words += ["--timeout", "0.1"]
    for _ in range(drawn.choice((0, 0, 0, 1, 2))):
        name = drawn.choice(_VARIABLES)
        value = drawn.choice((*_TEXTS, *place.places, *_SERVERS, "prod", "date.yaml"))
        # A variable holds bytes: of all lone surrogates only those that stand for a byte.
        value = value.replace("\ud800", "\udcff")
        run.env[name] = SECRET if name.startswith("REBAL_X_SASL") else value
    if drawn.random() < 0.3:
        _misplace_secret(run, command, drawn)
    if "prod" in run.words:
        run.env["REBAL_CONFIG"] = _filled("PROFILES", run, drawn, place, True)
    return run


def _misplace_secret(run: Run, command: tuple[str, ...], drawn: random.Random) -> None:
    """Give the secret as the value of any setting, on the command line or in the environment."""
    keys = drawn.sample(_KEYS, drawn.randint(1, 3))
    if drawn.random() < 0.5 and any("-X" in param.opts for param in commands()[command]):
        for key in keys:
            run.words += ["-X", f"{key}={SECRET}"]
    else:
        run.env |= {f"REBAL_X_{key.upper().replace('.', '_')}": SECRET for key in keys}


def _filled(word: str, run: Run, drawn: random.Random, place: Range, damaged: bool) -> str:
    """Return the name of a good or a damaged file where `word` is a kind, otherwise `word`."""
    if word == "COMPLETED":
        line = drawn.choice(_COMPLETED)
        return " ".join(_filled(part, run, drawn, place, False) for part in line.split(" "))
    if word == "LIVE":
        return f"127.0.0.1:{place.broker.port}"
    if word not in place.kinds:
        return word
    name, data = drawn.choice(list(place.kinds[word].items()))
    if not damaged or drawn.random() < 0.2:
        return LAKE if word == "LAKE" else name
    target = name if word == "LAKE" else str(Path(name).with_name(f"damaged-{Path(name).name}"))
    if word == "SEGMENT":
        target = f"__consumer_offsets-9/{Path(name).name}"
    run.damage[target] = _damaged(data, drawn)
    return LAKE if word == "LAKE" else target


def _typed(param: Any, drawn: random.Random, places: list[str]) -> list[str]:
    """Return the words of one option or argument with a hostile value."""
    name = drawn.choice(param.opts) if param.opts else ""
    if name in ("--watch", "--until", "--listen"):
        return [name, drawn.choice(_LISTEN)] if name == "--listen" else []
    kind = str(param.type)
    if kind == "BOOL":
        return [name]
    if name in _LASTS and drawn.random() < 0.8:
        values: tuple[str, ...] = ("1", "2", "0", "x")
    elif name in ("--bootstrap", "-b"):
        values = _SERVERS
    elif name in ("-X", "--lake-option", "--spark-conf"):
        values = _SETTINGS
    elif "Path" in kind or param.metavar in ("LAKE", "PATH...", "NAME|FILE", "[B]"):
        values = (*places, *(name for good in KINDS.values() for name in good))
    elif kind.startswith("Choice") and drawn.random() < 0.7:
        values = tuple(param.type.choices)
    else:
        values = _TEXTS
    value = drawn.choice(values)
    if param.param_type_name == "argument":
        return [value]
    joined = drawn.random() < 0.2
    return [f"{name}={value}" if name.startswith("--") else f"{name}{value}"] if joined else [
        name, value,
    ]  # fmt: skip


def _damaged(good: bytes, drawn: random.Random) -> bytes:
    """Return a good file with some bytes changed, cut or repeated."""
    data = bytearray(good)
    for _ in range(drawn.randint(1, 4)):
        at = drawn.randrange(len(data) + 1)
        data[at : at + drawn.choice((0, 1, 8))] = drawn.choice(_PARTS)
    if drawn.random() < 0.2:
        del data[drawn.randrange(len(data) + 1) :]
    return bytes(data)


class LateError(BaseException):
    """The alarm of a run that lasts too long."""


class Range:
    """A folder of hostile files and a wrong broker, in which runs are carried out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stand_ins = contextlib.ExitStack()
        for module, name, stand_in in (
            # A pipe without a writer takes this long in each run that names it.
            (files, "_PATIENCE", 0.05),
            # Nothing starts a JVM: a scan reads its sources and ends where Spark would begin.
            (job, "require", lambda *_, **__: None),
            (job, "spark_session", lambda *_, **__: contextlib.nullcontext()),
            (lake_run, "new_scan", _no_run),
        ):
            self._stand_ins.enter_context(mock.patch.object(module, name, stand_in))
        # `mock.patch.dict` would forget every module that is imported meanwhile.
        modules = pytest.MonkeyPatch()
        self._stand_ins.callback(modules.undo)
        scan = SimpleNamespace(scan=_read_sources)
        modules.setitem(sys.modules, "rebal.inspectors.fleet.scan", scan)
        self.places = make_ground(folder)
        self.broker = WrongBroker()
        live = f"127.0.0.1:{self.broker.port}"
        with contextlib.redirect_stderr(_stream()), contextlib.redirect_stdout(_stream()):
            for line in (
                "plan-upgrade --snapshot checkout.rebal.yaml --out plan.yaml",
                f"verify plan.yaml --snapshot checkout.rebal.yaml --journal {_JOURNAL}",
                f"plan-upgrade g -b {live} --out live.yaml",
                f"fleet report {LAKE}",
            ):
                app.run(line.split())
        made = {name: Path(name).read_bytes() for name in ("plan.yaml", "live.yaml", _JOURNAL)}
        lake = [path for path in Path(LAKE).rglob("*") if path.is_file()]
        self.kinds = {
            **KINDS,
            "PLAN": {"plan.yaml": made["plan.yaml"]},
            "JOURNAL": {_JOURNAL: made[_JOURNAL]},
            "LAKE": {str(path): path.read_bytes() for path in lake},
        }
        self._spoiled: Set[str] = set()
        # Files that a run may have replaced.
        self._good = {Path(name): data for name, data in (KINDS["SNAPSHOT"] | made).items()}

    def close(self) -> None:
        """Stop the broker, and take the stand-ins away."""
        self.broker.close()
        self._stand_ins.close()

    def run(self, run: Run) -> End:
        """Carry one run out in this process."""
        self._prepare(run)
        files_before = self._written()
        out, err = _stream(), _stream()
        before = dict(os.environ)
        os.environ.update({**_KEPT_OUT, "HOME": str(self._folder), "REBAL_DEBUG": "1", **run.env})
        code, fault = None, ""
        _reset_peak()
        # A worker of a test suite, or a process of many runs, holds more than rebal alone does.
        held = max(0, _status("VmRSS:") - ALONE_KILOBYTES)
        signal.signal(signal.SIGALRM, _late)
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = app.run(run.words)
        except (Exception, LateError) as error:
            fault = f"{type(error).__name__} {_where(error)}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.environ.clear()
            os.environ.update(before)
        said = out.buffer.getvalue() + err.buffer.getvalue()  # type: ignore[attr-defined]
        end = End(code, fault, _status("VmHWM:") - held, said.decode("utf-8", "replace"))
        return self._judged(end, self._written() - files_before)

    def _written(self) -> Set[tuple[Path, int]]:
        """Return the files that a run may write, each with the time of its last change."""
        paths = [*self._folder.iterdir(), *(self._folder / "new").rglob("*")]
        return {(path, path.stat().st_mtime_ns) for path in paths if path.is_file()}

    def _prepare(self, run: Run) -> None:
        for path, data in self._good.items():
            if not path.is_file() or path.stat().st_size != len(data):
                path.write_bytes(data)
        shutil.rmtree("new", ignore_errors=True)
        for name in self._spoiled:
            (self._folder / name).write_bytes(self.kinds["LAKE"][name])
        self._spoiled = run.damage.keys() & self.kinds["LAKE"].keys()
        for name, data in run.damage.items():
            path = self._folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        self.broker.way, self.broker.after = run.way, run.after
        self.broker.seed = run.seed

    def _judged(self, end: End, written: Set[tuple[Path, int]]) -> End:
        if not end.fault:
            if SECRET.lower() in end.said.lower():
                end.fault = "the secret is printed"
            elif any(SECRET.encode() in path.read_bytes() for path, _ in written):
                end.fault = "the secret is in a file"
            elif end.code not in (0, 1, 2, 3, 4):
                end.fault = f"exit code {end.code}"
            elif end.code in (1, 2) and not end.said.strip():
                end.fault = f"exit code {end.code} without a sentence"
            elif "this is a fault" in end.said or "Traceback" in end.said:
                end.fault = "a fault of rebal"
            elif end.kilobytes > MOST_KILOBYTES:
                end.fault = f"{end.kilobytes >> 10} MiB"
        return end


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _no_run(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(previous=None)


def _read_sources(*_: Any, source: Any, request_logs: Any, **__: Any) -> Any:
    """Read what the tasks of a scan would read."""
    for share in source.share(1, {}) if source and source.read is read_partition else ():
        for rows in source.read(share):
            rows.validate()
    parts = share_out(request_logs, 1)[0] if request_logs else []
    for part in itertools.chain.from_iterable(parts):
        for block in itertools.islice(blocks(part), 20):
            block.text.splitlines()
    raise SparkError("there is no Spark here.")


def _late(*_: object) -> None:
    raise LateError


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [one for one in frames if "/tests/" not in one.filename]
    return " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(ours[-4:]))


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    """Return a figure of this process's memory, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
