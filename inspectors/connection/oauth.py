"""SASL/OAUTHBEARER as it is set: where tokens come from (KIP-768, KIP-1139), `oauth_of`.

Java's spelling and librdkafka's are both taken. A token comes from an OAuth 2 endpoint by client
credentials, or from a file that something else keeps fresh (`sasl.oauthbearer.token.endpoint.url`
with `file:`). What a token is for, inspectors/connection/tokens.py has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from rebal.inspectors.kafka.errors import SettingError

MECHANISM: Final = "OAUTHBEARER"
URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
AUTHORITY: Final = "https.ca.location"
_METHOD: Final = "sasl.oauthbearer.method"
_ENCODE: Final = "sasl.oauthbearer.header.urlencode"
KEYS: Final = frozenset({URL, CLIENT, SECRET, SCOPE, EXTENSIONS, AUTHORITY, _METHOD, _ENCODE})
ALIASES: Final = {
    "sasl.oauthbearer.client.id": CLIENT,
    "sasl.oauthbearer.client.secret": SECRET,
}
# What a token is checked against is the broker's to know.
IGNORED: Final = (
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.jwt.validator.class",
)
# Java's own classes, which do what is done here.
CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    ),
}
UNSECURED: Final = "unsigned tokens are for tests only: give a token endpoint or a file of a token"


class OAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Where tokens come from; its repr leaves the secret out.

    `file` is a token's file, read again at each login; else `url` is the endpoint, whose
    certificate is checked against the authority in `ca` (None: the system's). `extensions` are SASL
    extensions (KIP-342). `encode`: the client's id and secret are URL-encoded (KIP-1049).
    """

    file: str | None = None
    url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca: str | None = None
    encode: bool = False

    def __repr__(self) -> str:
        return f"OAuth({self.who})"

    def __rich_repr__(self) -> Any:
        """What rich prints: as little as repr."""
        yield repr(self)

    @property
    def who(self) -> str:
        """Whose token it is, as far as the settings say."""
        return f"the token in {self.file}" if self.file else f"client {self.client_id}"


def oauth_of(settings: Mapping[str, str]) -> OAuth:
    """What the settings say of tokens.

    Raises:
        SettingError: no place where a token comes from, or one that cannot be used.
    """
    if settings.get(_METHOD, "oidc").strip().lower() != "oidc":
        raise SettingError(f"{_METHOD}: {UNSECURED}.")
    address = settings.get(URL, "").strip()
    parts = urlsplit(address)
    extensions = _extensions(settings.get(EXTENSIONS, ""))
    if parts.scheme == "file":
        return OAuth(file=_path(parts.path), extensions=extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(
            f"sasl.mechanism={MECHANISM} needs {URL}: the address of a token endpoint "
            "(https://…/token), or of a file that holds a token (file:///…)."
        )
    if "@" in parts.netloc:
        raise SettingError(f"{URL}: a login does not belong there: set {CLIENT} and {SECRET}.")
    for key in (CLIENT, SECRET):
        if not settings.get(key):
            raise SettingError(
                f"sasl.mechanism={MECHANISM} needs {key}, or clientId=… and clientSecret=… of "
                "OAuthBearerLoginModule in sasl.jaas.config."
            )
    return OAuth(
        url=address,
        client_id=settings[CLIENT],
        client_secret=settings[SECRET],
        scope=settings.get(SCOPE) or None,
        extensions=extensions,
        ca=_authority(settings.get(AUTHORITY, "").strip()),
        encode=settings.get(_ENCODE, "").strip().lower() == "true",
    )


def of_jaas(options: Mapping[str, str]) -> dict[str, str]:
    """The options of `OAuthBearerLoginModule` as settings.

    Raises:
        SettingError: they ask for unsigned tokens.
    """
    if any(name.startswith("unsecured") for name in options):
        raise SettingError(f"sasl.jaas.config: {UNSECURED}.")
    names = {"clientId": CLIENT, "clientSecret": SECRET, "scope": SCOPE}
    found = {key: options[name] for name, key in names.items() if name in options}
    extensions = [
        f"{name.removeprefix('extension_')}={value}"
        for name, value in options.items()
        if name.startswith("extension_")
    ]
    return found | ({EXTENSIONS: ",".join(extensions)} if extensions else {})


def _path(text: str) -> str:
    path = unquote(text)
    if not path:
        raise SettingError(f"{URL}: expected file:///PATH of a file that holds a token.")
    return path


def _authority(text: str) -> str | None:
    if not text:
        return None
    path = Path(text).expanduser()
    try:
        with path.open("rb"):
            return str(path)
    except OSError as error:
        raise SettingError(f"{AUTHORITY}: cannot read {path}: {error.strerror}.") from None


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.isalpha() or not value.isprintable():
            raise SettingError(f"{EXTENSIONS}: expected name=value, and a comma between two.")
        found.append((name, value))
    return tuple(found)
