"""The connection as options of kafka-python's own command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebal.groups.commands import Command
from rebal.inspectors.connection.config import resolve
from rebal.inspectors.connection.translate import words_of
from rebal.planner.commands import Given

LOGIN = ("sasl.mechanism=SCRAM-SHA-512", "sasl.username=ann", "sasl.password=hunter2")
TLS = ("security.protocol=SSL", "ssl.ca.location=ca.pem")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "own.pem", "a=b.pem"):
        Path(name).write_text("x")


def words(*settings: str) -> tuple[str, ...] | None:
    return words_of(resolve("b:1", settings, None, None, {}, 1000))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ((), ""),
        (("security.protocol=SASL_PLAINTEXT", *LOGIN), "-S SASL_PLAINTEXT -M SCRAM-SHA-512"),
        (TLS, "-S SSL -C ssl_cafile=ca.pem"),
        (
            ("security.protocol=SASL_SSL", TLS[1], *LOGIN,
             "ssl.endpoint.identification.algorithm="),
            "-S SASL_SSL -M SCRAM-SHA-512 -C ssl_cafile=ca.pem -C ssl_check_hostname=False",
        ),
        (
            (*TLS, "ssl.keystore.location=own.pem"),
            "-S SSL -C ssl_cafile=ca.pem -C ssl_certfile=own.pem -C ssl_keyfile=own.pem",
        ),
    ],
)  # fmt: skip
def test_every_setting_has_its_option(settings: tuple[str, ...], line: str) -> None:
    made = words(*settings)
    assert " ".join(made) == line


@pytest.mark.parametrize(
    "settings",
    [
        ("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER",
         "sasl.oauthbearer.token.endpoint.url=file:///token"),
        ("security.protocol=SSL", "ssl.ca.pem=x"),
        ("security.protocol=SSL", "ssl.ca.location=a=b.pem"),
        (*TLS, "ssl.keystore.location=own.pem", "ssl.key.password=x"),
    ],
)  # fmt: skip
def test_what_has_no_option_gives_no_words_and_no_command(settings: tuple[str, ...]) -> None:
    assert words(*settings) is None
    assert not list(Given(brokers="b:1", client=None).remove_static("g", ["s"]))


def test_login_comes_from_variables_that_the_use_names() -> None:
    client = words("security.protocol=SASL_PLAINTEXT", *LOGIN)
    (made,) = Given(brokers="b:1", client=client).remove_static("$g", ["s 1"])
    assert made.use == (
        "only if s 1 is gone for good, and with REBAL_X_SASL_USERNAME and REBAL_X_SASL_PASSWORD "
        "set: remove its entry"
    )
    assert made.line == Command.read(
        "python -m kafka.admin -b b:1 -S SASL_PLAINTEXT -M SCRAM-SHA-512 "
        '-U "$REBAL_X_SASL_USERNAME" -P "$REBAL_X_SASL_PASSWORD" '
        "groups remove-members -g '$g' -i 's 1'"
    )
