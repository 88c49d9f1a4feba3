"""The OAuth 2 token endpoint: `answer_of` sends one client credentials grant (RFC 6749, 4.4)."""

import base64
import json
import re
import ssl
import urllib.request
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode

from rebal.inspectors.connection.auth import AUTHORITY, CLIENT, URL, OAuth
from rebal.inspectors.errors import ConnectError

_MOST: Final = 1 << 20


def answer_of(oauth: OAuth, timeout: float) -> dict[str, Any]:
    """Request a token from the token endpoint and return the fields of its JSON answer.

    The result is empty if the answer is JSON but no object.

    Raises:
        ConnectError: the endpoint cannot be reached, rejects the grant, or gives no JSON within
            `timeout` seconds.
    """
    where = f"the token endpoint ({URL})"
    try:
        with _opener(oauth).open(_request(oauth), timeout=max(0.1, timeout)) as answer:
            body = json.loads(answer.read(_MOST))
    except HTTPError as error:
        raise ConnectError(
            f"{where} rejected {CLIENT} or its secret ({_reason(error)}).", "token"
        ) from None
    except URLError as error:
        why = getattr(error.reason, "strerror", None) or error.reason
        raise ConnectError(f"cannot reach {where}: {str(why).lower()}.", "token") from None
    except TimeoutError:
        raise ConnectError(
            f"{where} did not answer within {round(timeout, 1):g} s.", "token"
        ) from None
    except (OSError, HTTPException):
        raise ConnectError(f"{where} closed the connection.", "token") from None
    except ValueError:
        raise ConnectError(f"{where} did not answer in JSON.", "token") from None
    return body if isinstance(body, dict) else {}


def _request(oauth: OAuth) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"}
    form |= {"scope": oauth.scope} if oauth.scope is not None else {}
    login = [oauth.client_id or "", oauth.client_secret or ""]
    pair = ":".join(map(quote_plus, login) if oauth.encode else login)
    return urllib.request.Request(
        oauth.url or "",
        urlencode(form).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Accept": "application/json",
        },
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: the secret goes to the configured address only."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that the redirect is treated as an error response."""


def _opener(oauth: OAuth) -> urllib.request.OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=oauth.ca)
    except ssl.SSLError:
        raise ConnectError(f"{AUTHORITY}: the file holds no certificate in PEM.", "token") from None
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))


def _reason(error: HTTPError) -> str:
    """Return the HTTP status and the endpoint's own error code (RFC 6749, section 5.2)."""
    try:
        code = json.loads(error.read(_MOST)).get("error")
    except (OSError, HTTPException, ValueError, AttributeError):
        code = None
    named = f": {code}" if isinstance(code, str) and re.fullmatch(r"[\w.-]{1,60}", code) else ""
    return f"{error.code}{named}"
