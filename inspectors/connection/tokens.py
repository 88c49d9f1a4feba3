"""OAuth 2 access tokens for OAUTHBEARER: `token_of` returns one, from a file or an endpoint."""

import base64
import json
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rebal.inspectors.connection.auth import URL, OAuth, Secretive
from rebal.inspectors.errors import ConnectError
from rebal.inspectors.files import read_text

_USED: Final = 0.8
_MOST: Final = 1 << 20
_ASSUMED_LIFE: Final = 300.0


class Token(Secretive, frozen=True):
    """One access token; `expires` and `renew` are seconds since 1970. Never print it."""

    value: str
    expires: float
    renew: float

    def __repr__(self) -> str:
        return "Token([secret])"


_KEPT: dict[OAuth, Token] = {}
_LOCK: Final = threading.Lock()


def token_of(oauth: OAuth, timeout: float) -> Token:
    """Return a token that is valid for `timeout` seconds, if the endpoint gives such tokens.

    A token from an endpoint is used for four fifths of its life, as Java's client does, and never
    when it could expire before the operation ends: the broker would close the connection (KIP-368).
    A token file is read at each login.

    Raises:
        ConnectError: the endpoint or the file gives no valid token within `timeout` seconds.
    """
    if oauth.file is not None:
        return _from_file(oauth.file)
    with _LOCK:
        kept = _KEPT.get(oauth)
        if kept is None or min(kept.renew, kept.expires - timeout) <= time.time():
            kept = _KEPT[oauth] = _from_endpoint(oauth, timeout)
        return kept


def forget(oauth: OAuth) -> None:
    """Drop the token that a broker rejected, so that the next login requests a new one."""
    with _LOCK:
        _KEPT.pop(oauth, None)


def _from_file(name: str) -> Token:
    try:
        text = read_text(Path(name), _MOST).strip()
    except OSError as error:
        raise ConnectError(f"{URL}: cannot read the token: {error.strerror}.", "token") from None
    token = _token(text, None, f"{URL}: the file contains no token")
    if token.expires <= time.time():
        at = datetime.fromtimestamp(token.expires, UTC)
        raise ConnectError(f"{URL}: the token expired at {at:%H:%M:%SZ}: replace it.", "token")
    return token


def _from_endpoint(oauth: OAuth, timeout: float) -> Token:
    # The HTTP client is loaded only for logins that need it.
    from rebal.inspectors.connection.endpoint import answer_of

    where = f"the token endpoint ({URL})"
    fields = answer_of(oauth, timeout)
    life = fields.get("expires_in")
    seconds = float(life) if isinstance(life, int | float) and 0 < life < 1e9 else None
    token = _token(fields.get("access_token"), seconds, f"{where} answered without a token")
    if token.expires <= time.time():
        raise ConnectError(f"{where} returned an expired token: compare the clocks.", "token")
    return token


def _token(text: object, life: float | None, problem: str) -> Token:
    # RFC 6750, section 2.1; a SASL message must contain nothing else.
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9\-._~+/]+=*", text):
        raise ConnectError(f"{problem}.", "token")
    now = time.time()
    expires = _claimed_end(text) or now + (life or _ASSUMED_LIFE)
    return Token(value=text, expires=expires, renew=now + (expires - now) * _USED)


def _claimed_end(text: str) -> float | None:
    """Return the end that a JWT claims; None for a token that only its issuer can read."""
    try:
        _, body, _ = text.split(".")
        end = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"]
    except (ValueError, LookupError, TypeError):
        return None
    return float(end) if isinstance(end, int | float) and 0 < end < 1e11 else None
