"""OAuth 2 tokens for SASL/OAUTHBEARER: `token_of`, one for both Kafka clients.

A token of an endpoint is used for four fifths of its life, as Java's client does, and never where
it could end before the operation does: the broker then closes the connection (KIP-368). One of a
file is read at each login, so that whatever keeps the file fresh is followed.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
import urllib.request
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode

import msgspec
from kafka.net.sasl.oauth import AbstractTokenProvider

from rebal.inspectors.connection.oauth import AUTHORITY, OAuth
from rebal.inspectors.kafka.errors import ConnectError

_USED: Final = 0.8
_ASSUMED_LIFE: Final = 300.0
_MOST: Final = 1 << 20
# RFC 6750, section 2.1; nothing else may stand in a SASL message.
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class Token(msgspec.Struct, frozen=True):
    """One access token; `expires` and `renew` are seconds of the epoch. Never print it."""

    value: str
    expires: float
    renew: float

    def __repr__(self) -> str:
        return "Token([secret])"


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """What kafka-python asks for a token, within `timeout` seconds."""

    def __init__(self, oauth: OAuth, timeout: float) -> None:
        super().__init__()
        self._oauth = oauth
        self._timeout = timeout

    def token(self) -> str:
        """The token's text."""
        return token_of(self._oauth, self._timeout).value

    def extensions(self) -> dict[str, str]:
        """SASL extensions (KIP-342)."""
        return dict(self._oauth.extensions)


_KEPT: dict[OAuth, Token] = {}
_LOCK: Final = threading.Lock()


def token_of(oauth: OAuth, timeout: float) -> Token:
    """A token that is good now, and for `timeout` seconds more where the endpoint gives such ones.

    Raises:
        ConnectError: the endpoint or the file gives none within `timeout` seconds, or an expired
            one.
    """
    if oauth.file is not None:
        return _from_file(oauth.file)
    with _LOCK:
        kept = _KEPT.get(oauth)
        if kept is None or min(kept.renew, kept.expires - timeout) <= time.time():
            kept = _KEPT[oauth] = _from_endpoint(oauth, timeout)
        return kept


def forget(oauth: OAuth) -> None:
    """A broker has refused the token that was kept: the next login takes a new one."""
    with _LOCK:
        _KEPT.pop(oauth, None)


def _from_file(name: str) -> Token:
    try:
        text = Path(name).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no token"
        raise _refused(f"cannot read the token in {name}: {why}.") from None
    token = _token(text, None, f"{name}: it holds no token")
    if token.expires <= time.time():
        at = datetime.fromtimestamp(token.expires, UTC)
        raise _refused(f"the token in {name} expired at {at:%H:%M:%SZ}: put a fresh one there.")
    return token


def _from_endpoint(oauth: OAuth, timeout: float) -> Token:
    where = f"the token endpoint {oauth.url}"
    try:
        with _opener(oauth).open(_request(oauth), timeout=max(0.1, timeout)) as answer:
            body = json.loads(answer.read(_MOST))
    except HTTPError as error:
        raise _refused(f"{where} refused {oauth.who} ({_reason(error)}).") from None
    except URLError as error:
        why = getattr(error.reason, "strerror", None) or error.reason
        raise _refused(f"cannot reach {where}: {str(why).lower()}.") from None
    except TimeoutError:
        raise _refused(f"{where} did not answer within {round(timeout, 1):g} s.") from None
    except (OSError, HTTPException):
        raise _refused(f"{where} closed the connection.") from None
    except ValueError:
        raise _refused(f"{where} did not answer in JSON.") from None
    fields = body if isinstance(body, dict) else {}
    life = fields.get("expires_in")
    seconds = float(life) if isinstance(life, int | float) and 0 < life < 1e9 else None
    token = _token(fields.get("access_token"), seconds, f"{where} answered without a token")
    if token.expires <= time.time():
        raise _refused(f"{where} gave a token that has expired already: compare the clocks.")
    return token


def _request(oauth: OAuth) -> urllib.request.Request:
    """A client credentials grant (RFC 6749, section 4.4)."""
    form = {"grant_type": "client_credentials"}
    if oauth.scope is not None:
        form["scope"] = oauth.scope
    login = [oauth.client_id or "", oauth.client_secret or ""]
    pair = ":".join(map(quote_plus, login) if oauth.encode else login)
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Accept": "application/json",
    }
    return urllib.request.Request(oauth.url or "", urlencode(form).encode(), headers)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the secret to an address that nobody named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: it is an answer like any other."""


def _opener(oauth: OAuth) -> urllib.request.OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=oauth.ca)
    except ssl.SSLError:
        raise _refused(f"{AUTHORITY}: {oauth.ca} holds no certificate in PEM.") from None
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))


def _reason(error: HTTPError) -> str:
    """The status, and the endpoint's own error code (RFC 6749, section 5.2)."""
    try:
        code = json.loads(error.read(_MOST)).get("error")
    except (OSError, HTTPException, ValueError, AttributeError):
        code = None
    named = f": {code}" if isinstance(code, str) and re.fullmatch(r"[\w.-]{1,60}", code) else ""
    return f"{error.code}{named}"


def _token(text: object, life: float | None, problem: str) -> Token:
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise _refused(f"{problem}.")
    now = time.time()
    expires = _claimed_end(text) or now + (life or _ASSUMED_LIFE)
    return Token(value=text, expires=expires, renew=now + (expires - now) * _USED)


def claims_of(text: str) -> dict[str, Any]:
    """The claims of a JWT; none for a token that only its issuer can read."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _claimed_end(text: str) -> float | None:
    end = claims_of(text).get("exp")
    return float(end) if isinstance(end, int | float) and 0 < end < 1e11 else None


def _refused(message: str) -> ConnectError:
    return ConnectError(message, "token")
