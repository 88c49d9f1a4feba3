"""The broker's release: by its newest metadata.version, else by the requests it supports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from rebal.inspectors.kafka.brokers import release_of
from rebal.inspectors.kafka.cluster import broker_version


def connection(release: tuple[int, int], metadata_version: int | None = None) -> Any:
    features = {} if metadata_version is None else {"metadata.version": metadata_version}
    versions = BROKER_API_VERSIONS[release]
    return SimpleNamespace(versions=versions, supported_features=features)


@pytest.mark.parametrize(
    ("requests", "metadata_version", "version", "release"),
    [
        ((3, 9), 21, "3.9", (3, 9)),
        ((4, 0), 25, "4.0", (4, 0)),
        ((4, 1), 33, "4.4", (4, 4)),
        # The metadata.version decides, whatever the requests say.
        ((3, 9), 27, "4.1", (4, 1)),
        # One that is not known, and a broker of ZooKeeper's time, which has none.
        ((4, 0), 9999, "4.0 or later", (4, 0)),
        ((2, 8), None, "2.8 or later", (2, 8)),
    ],
)
def test_the_release_is_read_off_the_protocol(
    requests: tuple[int, int], metadata_version: int | None, version: str, release: tuple[int, ...]
) -> None:
    broker = connection(requests, metadata_version)
    assert broker_version(broker) == version
    assert release_of(version) == release
