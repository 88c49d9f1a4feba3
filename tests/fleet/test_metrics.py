"""`rebal fleet metrics`: what Prometheus reads of a lake, on stdout, in a file and over HTTP."""

import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rebal.cli import app
from rebal.groups.model import Cluster
from rebal.inspectors.kafka.brokers import ClusterReading
from tests.fleet.conftest import REBAL
from tests.fleet.synthetic import AT, HOSTILE, fleet, write_tables

Said = pytest.CaptureFixture[str]
Labels = frozenset[tuple[str, str]]
Values = dict[tuple[str, Labels], float]


def labels(**given: str) -> Labels:
    return frozenset(given.items())


def values_of(text: str) -> Values:
    """Each sample of an OpenMetrics text; the parser rejects what the format does not allow."""
    found: Values = {}
    for family in parse_openmetrics(text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def metrics_of(capsys: Said, *words: object) -> Values:
    capsys.readouterr()
    assert app.run(["fleet", "metrics", *map(str, words)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return values_of(told.out)


def test_lag_is_the_log_end_offset_minus_the_committed_offset(tmp_path: Path, capsys: Said) -> None:
    rows = fleet(4)
    name = rows["groups"][0]["group_id"]
    commits = [
        ("orders", 0, 90, 10),
        ("orders", 1, 120, None),  # the topic was made anew
        ("orders", 2, None, None),  # a tombstone
        ("orders", 3, 5, None),  # a leader that gave no answer
        ("orders", 9, 5, None),  # more than the topic has
        ("gone", 0, 7, None),
    ]
    columns = ("topic", "topic_partition", "committed_offset")
    rows["commits"] = [
        dict(zip(columns, row[:3], strict=True))
        | {"group_id": name, "committed_at": AT - timedelta(seconds=row[1])}
        for row in commits
    ]
    brokers = ClusterReading(at=AT, cluster=Cluster(), ends={"orders": (100, 110, 50, None)})
    found = metrics_of(capsys, write_tables(tmp_path, rows, brokers=brokers))
    of = labels(cluster="unnamed", group=name)
    assert found["rebal_group_lag_records", of] == sum(lag or 0 for *_, lag in commits)
    assert found["rebal_group_lag_max_records", of] == 10
    assert found["rebal_group_lag_unknown_partitions", of] == 4
    assert found["rebal_group_last_commit_timestamp_seconds", of] == AT.timestamp()
    other = labels(cluster="unnamed", group=rows["groups"][1]["group_id"])
    assert ("rebal_group_lag_records", other) not in found
    # A later scan of files brought newer commits than the brokers' answer.
    old = replace(brokers, at=AT - timedelta(hours=1))
    found = metrics_of(capsys, write_tables(tmp_path, rows, brokers=old))
    assert ("rebal_group_lag_records", of) not in found
    assert found["rebal_group_lag_unknown_partitions", of] == 5


def test_each_cluster_of_a_lake_has_its_own_metric_series(tmp_path: Path, capsys: Said) -> None:
    for cluster, groups in (("west", 4), ("east", 8)):
        write_tables(tmp_path, fleet(groups), cluster=cluster)
    name = fleet(4)["groups"][1]["group_id"]
    for words, wanted in (
        ([tmp_path], {"west": 4, "east": 8}),
        ([f"{tmp_path}#west"], {"west": 4}),
        ([tmp_path, "--match", name], {"west": 1, "east": 1}),
    ):
        counts = Counter[str]()
        for (metric, pairs), value in metrics_of(capsys, *words).items():
            if metric == "rebal_groups":
                counts[dict(pairs)["cluster"]] += int(value)
        assert counts == wanted


NAMES = ('say "hi"', "back\\slash", "a\\x1b", "a\x1b", "new\nline", "ümlaut", HOSTILE, " ", "{}")


def test_any_group_id_becomes_one_metric_series_without_control_characters(
    tmp_path: Path, capsys: Said
) -> None:
    rows = fleet(len(NAMES))
    renamed = dict(zip((row["group_id"] for row in rows["groups"]), NAMES, strict=True))
    for table in rows.values():
        for row in table:
            row["group_id"] = renamed[row["group_id"]]
    lake = write_tables(tmp_path / "lake", rows, cluster='we"st\x1b')
    found = metrics_of(capsys, lake)
    shown = {dict(pairs).get("group") for _, pairs in found} - {None}
    assert len(shown) == len(NAMES)
    assert {'say "hi"', "back\\\\slash", "a\\\\x1b", "a\\x1b", "ümlaut"} <= shown
    assert {dict(pairs)["cluster"] for _, pairs in found if pairs} == {'we"st\\x1b'}
    app.run(["fleet", "metrics", str(lake)])
    assert all(char.isprintable() for char in capsys.readouterr().out.replace("\n", ""))
    out = tmp_path / "hostile.prom"
    assert app.run(["fleet", "metrics", str(lake), "--out", str(out)]) == 0
    samples = [each for family in parse_text(out.read_text()) for each in family.samples]
    assert {each.labels.get("group") for each in samples} - {None} == shown


def test_metrics_out_replaces_the_whole_file_in_node_exporter_format(
    small_scan: Path, tmp_path: Path, capsys: Said
) -> None:
    found = metrics_of(capsys, small_scan)
    out = tmp_path / "rebal.prom"
    out.write_text("old")
    out.chmod(0o640)
    assert app.run(["fleet", "metrics", str(small_scan), "--out", str(out)]) == 0
    assert capsys.readouterr().err == f"rebal: wrote {out}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rebal.prom"]
    assert out.stat().st_mode & 0o777 == 0o640
    text = out.read_text()
    assert "# TYPE rebal_group_rebalances_total counter\n" in text
    # node_exporter fails on other types, and on samples with a time.
    kinds = {line.split()[-1] for line in text.splitlines() if line.startswith("# TYPE")}
    assert kinds == {"gauge", "counter"}
    samples = [each for family in parse_text(text) for each in family.samples]
    assert all(each.timestamp is None for each in samples)
    assert {(s.name, frozenset(s.labels.items())): s.value for s in samples} == found


@pytest.mark.parametrize(
    ("words", "code", "message"),
    yaml.safe_load((Path(__file__).parents[1] / "data/wrong_metrics.yaml").read_text()),
)
def test_invalid_metrics_options_are_reported_in_one_sentence(
    *, words: list[str], code: int, message: str, small_scan: Path, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "a.prom").write_text("old")
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = other.getsockname()[1]
        filled = [word.format(lake=small_scan, empty=tmp_path, used=used) for word in words]
        assert app.run(["fleet", "metrics", *filled]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (tmp_path / "a.prom").read_text() == "old"
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_metrics_without_prometheus_client_name_the_pip_extra(
    small_scan: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert app.run(["fleet", "metrics", str(small_scan)]) == 1
    assert capsys.readouterr().err == (
        "rebal: metrics need prometheus-client: pip install 'rebal[lake]'.\n"
    )


@contextmanager
def served(lake: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server on a free port of loopback, and its URL."""
    words = [REBAL, "fleet", "metrics", lake, "--listen", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert said.startswith(f"rebal: metrics of {lake} on http://127.0.0.1:"), said
            yield said.split(" on ")[1].split()[0], process
        finally:
            process.kill()


def fetched(url: str, accept: str = "application/openmetrics-text") -> str:
    with urlopen(Request(url, headers={"Accept": accept}), timeout=30) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(accept)
        return str(answer.read().decode())


def test_the_metrics_server_shows_new_scans_and_survives_an_unreadable_lake(tmp_path: Path) -> None:
    lake = write_tables(tmp_path / "lake", fleet(4), records={"GROUP_METADATA": 5})
    read = "rebal_scan_records_read_total", labels(cluster="unnamed")
    readable = "rebal_lake_readable", labels()
    with served(lake) as (url, process):
        assert values_of(fetched(url))[read] == 5
        text = fetched(url, "text/plain")
        assert "# TYPE rebal_scan_records_read_total counter\n" in text
        idle = socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
        write_tables(lake, fleet(8), records={"GROUP_METADATA": 9})
        found = values_of(fetched(url))
        idle.close()
        assert (found[read], found[readable]) == (9, 1)
        shutil.move(lake / "scans", tmp_path / "aside")
        found = values_of(fetched(url))
        assert (found[read], found[readable]) == (9, 0)
        shutil.move(tmp_path / "aside", lake / "scans")
        assert values_of(fetched(url))[readable] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        printed = process.stderr.read().splitlines()
        assert printed[-1] == "rebal: stopped."
        assert len(printed) == 2
        assert "no scan wrote it" in printed[0]


def test_the_metrics_server_listens_on_loopback_unless_a_host_is_given() -> None:
    from rebal.cli.metrics import address_of

    assert address_of("9464") == address_of(":9464") == ("127.0.0.1", 9464)
    assert address_of("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert address_of("[::1]:9464") == ("::1", 9464)
