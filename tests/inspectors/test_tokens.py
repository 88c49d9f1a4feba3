"""Tokens for OAUTHBEARER: from an endpoint and from a file, renewed in time, refused by name."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from rebal.inspectors.connection import translate
from rebal.inspectors.connection.auth import URL, OAuth
from rebal.inspectors.errors import ConnectError
from tests.kafka.issuer import Issuer, token
from tests.tables import table

SECRET = "client s3cret+"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(60, sub="me") as made:
        yield made


def client(issuer: Issuer, **more: object) -> OAuth:
    fields = {"url": issuer.url, "client_id": "me", "client_secret": SECRET, **more}
    return OAuth(**fields)  # type: ignore[arg-type]


def refused(oauth: OAuth, timeout: float = 5) -> str:
    with pytest.raises(ConnectError) as error:
        translate.token_of(oauth, timeout)
    assert error.value.kind == "token"
    text = str(error.value)
    assert SECRET not in text
    assert text.endswith(".")
    assert "\n" not in text
    return text


def test_a_token_serves_for_four_fifths_of_its_life(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    oauth = client(issuer)
    first = translate.token_of(oauth, 5)
    assert translate.token_of(oauth, 5) is first
    assert len(issuer.asked) == 1
    assert repr(first) == "Token([secret])"
    monkeypatch.setattr(time, "time", lambda: now + 46)
    assert translate.token_of(oauth, 5) is first
    monkeypatch.setattr(time, "time", lambda: now + 49)
    renewed = translate.token_of(oauth, 5)
    assert renewed.expires > first.expires
    assert len(issuer.asked) == 2
    translate.forget(oauth)
    last = translate.token_of(oauth, 5)
    assert len(issuer.asked) == 3
    # It must be valid until the operation ends.
    monkeypatch.setattr(time, "time", lambda: last.expires - 19)
    assert translate.token_of(oauth, 18) is last
    assert translate.token_of(oauth, 20) is not last


def test_the_login_is_encoded_where_that_is_asked_for(issuer: Issuer) -> None:
    translate.token_of(client(issuer), 5)
    translate.token_of(client(issuer, encode=True, scope="a b"), 5)
    plain, encoded = (
        base64.b64decode(asked["authorization"].removeprefix("Basic ")).decode()
        for asked in issuer.asked
    )
    assert plain == f"me:{SECRET}"
    assert encoded == "me:client+s3cret%2B"
    assert [asked.get("scope") for asked in issuer.asked] == [None, "a b"]


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"access_token": "opaque", "expires_in": 30}, 30),
        ({"access_token": "opaque"}, 300),
        ({"access_token": "a.b.c", "expires_in": 30}, 30),
    ],
)
def test_a_token_that_only_its_issuer_can_read(
    issuer: Issuer, body: dict[str, object], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    issuer.body = json.dumps(body).encode()
    found = translate.token_of(client(issuer), 5)
    assert found.expires - now == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    table("tokens", "no_token"),
)
def test_an_answer_without_a_token_is_named_and_not_kept(
    issuer: Issuer, status: int, body: str | None, words: str
) -> None:
    issuer.status, issuer.body = status, body and body.encode()
    assert words in refused(client(issuer))
    issuer.status, issuer.body = 200, None
    assert translate.token_of(client(issuer), 5).value


def test_a_token_that_has_expired_when_it_comes(issuer: Issuer) -> None:
    issuer.life = -5
    assert "returned an expired token: compare the clocks" in refused(client(issuer))


def test_a_redirect_never_gets_the_secret(issuer: Issuer) -> None:
    with Issuer(60) as other:
        issuer.status, issuer.location = 302, other.url
        assert "(302" in refused(client(issuer))
        assert other.asked == []


def test_nobody_there_and_nobody_who_answers(issuer: Issuer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        assert "did not answer within 0.4 s" in refused(client(issuer, url=url), 0.4)
    assert "cannot reach the token endpoint" in refused(client(issuer, url=url))
    secure = issuer.url.replace("http:", "https:")
    assert "cannot reach the token endpoint" in refused(client(issuer, url=secure))


def test_an_endpoint_with_tls_is_trusted_by_its_authority_alone(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    for name, each in (("ca", authority), ("other", other)):
        each.cert_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    with Issuer(60, context, sub="me") as issuer:
        assert translate.token_of(client(issuer, ca=str(tmp_path / "ca.pem")), 5).value
        for ca in (str(tmp_path / "other.pem"), None):
            assert "certificate verify failed" in refused(client(issuer, ca=ca))
        (tmp_path / "other.pem").write_text("x")
        text = refused(client(issuer, ca=str(tmp_path / "other.pem")))
        assert "https.ca.location: the file holds no certificate in PEM" in text
        assert len(issuer.asked) == 1


def test_a_file_is_read_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    oauth = OAuth(file=str(file))
    assert refused(oauth) == f"{URL}: cannot read the token: No such file or directory."
    file.write_text("")
    assert refused(oauth) == f"{URL}: the file contains no token."
    file.write_bytes(b"\xff\x00")
    assert refused(oauth) == f"{URL}: cannot read the token: not UTF-8 text (byte 0)."
    for life in (60, 90):
        text = token(life, sub="me")
        file.write_text(f"{text}\n")
        assert translate.token_of(oauth, 5).value == text
    file.write_text(token(-1, sub="me"))
    assert "replace it" in refused(oauth)
