"""Packages whose `__init__` waits: what is not loaded, and that nothing is missing for others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebal.inspectors.deferred import defer

# `ready` shows how often `__init__` ran; `part` asks its own package for a name that is not there.
INIT = """
import builtins
builtins.deferred_runs = getattr(builtins, "deferred_runs", 0) + 1
from deferred_case import part
ready = "ready"
"""
PART = """
import deferred_case
early = hasattr(deferred_case, "ready")
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "deferred_case"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "part.py").write_text(PART)
    (folder / "plain.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.deferred_runs", 0, raising=False)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "deferred_case"]:
        del sys.modules[name]


def runs() -> int:
    import builtins

    return int(builtins.deferred_runs)  # type: ignore[attr-defined]


def test_a_module_is_imported_without_the_init_of_its_package() -> None:
    defer("deferred_case")
    assert importlib.import_module("deferred_case.plain").value == 7
    assert sys.modules["deferred_case"].plain.value == 7
    assert runs() == 0


def test_the_init_runs_once_for_the_first_name_that_is_missing() -> None:
    defer("deferred_case")
    package = importlib.import_module("deferred_case")
    assert (package.ready, package.part.early, runs()) == ("ready", False, 1)
    assert (package.ready, runs()) == ("ready", 1)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing
    assert runs() == 1


def test_a_package_that_is_imported_or_not_installed_stays_as_it_is() -> None:
    package = importlib.import_module("deferred_case")
    defer("deferred_case")
    assert sys.modules["deferred_case"] is package
    defer("deferred_case.plain")
    assert "deferred_case.plain" not in sys.modules
    defer("deferred_case_2")
    assert "deferred_case_2" not in sys.modules


def test_reading_a_group_loads_no_client_of_kafka_python_and_leaves_them_to_others() -> None:
    code = """
import sys
import rebal.inspectors.kafka.read
clients = {"kafka.admin", "kafka.consumer", "kafka.producer", "kafka.net.manager",
           "kafka.protocol.admin.acl", "kafka.protocol.broker_version_data",
           "asyncio.base_events", "urllib.request"}
print(sorted(clients & sys.modules.keys()))
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.net import KafkaConnection
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.admin.groups import ListGroupsRequest as same
import asyncio, kafka, urllib.request
from asyncio import events, Queue
asyncio.run(asyncio.sleep(0))
print(ListGroupsRequest is same, kafka.__version__, type(kafka).__name__)
print(sorted(clients - sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    version = importlib.metadata.version("kafka-python")
    assert done.stdout.splitlines() == ["[]", f"True {version} module", "[]"]
