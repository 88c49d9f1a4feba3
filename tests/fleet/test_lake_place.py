"""Where a lake can be: what is refused before anything is read, and what a store's errors say."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from rebal.inspectors.fleet.lake.place import LakeError, find_place
from rebal.inspectors.fleet.lake.store import open_store
from rebal.inspectors.fleet.sources.files import list_files
from tests.fleet.conftest import failures


def test_the_processs_environment_stays_as_it_is() -> None:
    code = (
        "import os; before = dict(os.environ)\n"
        "from rebal.inspectors.fleet.lake.place import find_place\n"
        "find_place('lake')\n"
        "assert dict(os.environ) == before, os.environ.keys() - before.keys()\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no lake is named"),
        ("ftp://host/lake", "no lake can be there; name a folder, or a URL"),
        ("s3://bucket/a?b", "^s3://bucket/a: a lake's URL has no login, no \\? and no #"),
        ("gs://bucket/lake#east", "^gs://bucket/lake: .* name the cluster with --cluster"),
        ("https://host/lake?sig=secret", "^https://host/lake: no lake can be there"),
        ("postgres://me:secret@host/lake", "^postgres://host/lake: no lake can be there"),
        ("abfss://box@account.dfs.core.windows.net/a?sig=secret", "settings with --lake-option"),
        ("s3://me:secret@bucket/a", "^s3://bucket/a: a lake's URL has no login"),
        ("s3://me:sec/ret@bucket/a", "^s3://bucket/a: a lake's URL has no login"),
        ("hdfs://me@name:8020/a", "^hdfs://name:8020/a: a lake's URL has no login"),
        ("hdfs://nn/a b", "no such path on HDFS"),
        ("hdfs://nn/ä", "no such path on HDFS"),
    ],
)
def test_names_that_no_lake_can_have_are_refused(text: str, says: str) -> None:
    with pytest.raises(LakeError, match=says) as told:
        find_place(text)
    assert not re.search("=secret|:sec/?ret", str(told.value))


def test_an_endpoint_that_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("store:9000", "store", "http://", "http://store:90x", "ftp://store"):
        with pytest.raises(LakeError, match=r"^s3://b/a: AWS_ENDPOINT_URL is no URL such as "):
            find_place("s3://b/a", {"AWS_ENDPOINT_URL": value})
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "store:9000")
    assert find_place("s3://b/a", {"aws_endpoint": "http://store:9000"}).url == "s3://b/a"
    with pytest.raises(LakeError, match="AZURE_STORAGE_ENDPOINT is no URL"):
        find_place("abfss://box@account.dfs.core.windows.net/a")


def test_a_panic_of_the_stores_client_is_one_sentence() -> None:
    place = find_place("s3://b/a")
    options = {"aws_endpoint": "no url", "aws_access_key_id": "x", "aws_secret_access_key": "y"}
    files = open_store(place.url, options)
    with pytest.raises(LakeError, match=r"^s3://b/a: the store says: "), place.errors():
        files.open_input_stream("x")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/a b/ü%20", "s3://bucket/a b/ü%20"),
        ("/srv/a#b", "/srv/a#b"),
        ("hdfs:///lakes/day=1/a-b_c.d", "hdfs:///lakes/day=1/a-b_c.d"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/team@east/a:b", "s3://bucket/team@east/a:b"),
        ("hdfs://name:8020/team@east", "hdfs://name:8020/team@east"),
        ("abfs://box@a.dfs.core.windows.net/a", "abfss://box@a.dfs.core.windows.net/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("file:///srv/lake", "/srv/lake"),
    ],
)
def test_names_of_the_same_store(text: str, url: str) -> None:
    assert find_place(text).url == url


@pytest.mark.parametrize(("text", "says"), failures("stores"))
def test_what_went_wrong_in_a_store_is_told_without_the_request(text: str, says: str) -> None:
    with pytest.raises(LakeError) as told, find_place("s3://b/a").errors():
        raise PermissionError(text)
    assert str(told.value) == f"s3://b/a: the store says: {says}."


def test_a_file_name_that_is_not_utf_8_is_named_in_a_sentence(tmp_path):
    (tmp_path / "server.log").touch()
    with open(os.fsencode(tmp_path) + b"/\xff", "w"):
        pass
    with pytest.raises(LakeError, match="the name of a file there is not UTF-8"):
        list_files(tmp_path.as_uri())
