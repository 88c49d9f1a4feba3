"""Authentication: the JAAS line and the OAUTHBEARER settings (KIP-768, KIP-1139).

Java's spelling of the settings and librdkafka's are both accepted. A token comes from an OAuth 2
endpoint by client credentials, or from a file that another program keeps fresh
(`sasl.oauthbearer.token.endpoint.url=file:///…`).
"""

import os
import re
from collections.abc import Mapping
from errno import EINVAL
from stat import S_ISREG
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from rebal.inspectors.errors import SettingError
from rebal.inspectors.files import expanded, opened

OAUTHBEARER: Final = "OAUTHBEARER"
URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
AUTHORITY: Final = "https.ca.location"
_METHOD: Final = "sasl.oauthbearer.method"
_ENCODE: Final = "sasl.oauthbearer.header.urlencode"
OAUTH_KEYS: Final = frozenset({URL, CLIENT, SECRET, SCOPE, EXTENSIONS, AUTHORITY, _METHOD, _ENCODE})
OAUTH_ALIASES: Final = {
    "sasl.oauthbearer.client.id": CLIENT,
    "sasl.oauthbearer.client.secret": SECRET,
}
# Only the broker validates tokens with these.
OAUTH_IGNORED: Final = (
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.jwt.validator.class",
)
# Java's own classes; rebal does the same work itself.
CALLBACK_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    ),
}
NO_UNSIGNED: Final = "unsigned tokens are for tests only: give a token endpoint or a token file"


class Secretive(msgspec.Struct, frozen=True):
    """Base of records that hold secrets; each subclass leaves the secrets out of its `__repr__`."""

    def __rich_repr__(self) -> Any:
        """Yield `repr(self)`, so that the library rich prints no secret either."""
        yield repr(self)


class OAuth(Secretive, frozen=True, kw_only=True):
    """The source of OAUTHBEARER tokens; its repr leaves the secret out.

    `file` is a token file that is read at each login. Otherwise `url` is the token endpoint, whose
    certificate is checked against the authority in `ca` (None: the system's authorities).
    `extensions` are SASL extensions (KIP-342). With `encode` the client id and secret are
    URL-encoded (KIP-1049).
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
        return "OAuth(a token file)" if self.file else "OAuth(a token endpoint)"


def oauth_of(settings: Mapping[str, str]) -> OAuth:
    """Return the source of OAUTHBEARER tokens that the settings describe: a file or an endpoint.

    Raises:
        SettingError: the settings name neither a token endpoint nor a token file, lack the client
            id or secret, have a wrong value, or ask for unsigned tokens.
    """
    if settings.get(_METHOD, "oidc").strip().lower() != "oidc":
        raise SettingError(f"{_METHOD}: {NO_UNSIGNED}.")
    address = settings.get(URL, "").strip()
    parts = urlsplit(address)
    extensions = _extensions(settings.get(EXTENSIONS, ""))
    if parts.scheme == "file":
        if not parts.path:
            raise SettingError(f"{URL}: expected file:///PATH of a file that holds a token.")
        return OAuth(file=unquote(parts.path), extensions=extensions)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(
            f"sasl.mechanism={OAUTHBEARER} needs {URL}: the address of a token endpoint "
            "(https://…/token), or of a file that holds a token (file:///…)."
        )
    if "@" in parts.netloc:
        raise SettingError(f"{URL}: a login does not belong there: set {CLIENT} and {SECRET}.")
    for key in (CLIENT, SECRET):
        if not settings.get(key):
            raise SettingError(
                f"sasl.mechanism={OAUTHBEARER} needs {key}, or clientId=… and clientSecret=… of "
                "OAuthBearerLoginModule in sasl.jaas.config."
            )
    authority = settings.get(AUTHORITY, "").strip()
    return OAuth(
        url=address,
        client_id=settings[CLIENT],
        client_secret=settings[SECRET],
        scope=settings.get(SCOPE) or None,
        extensions=extensions,
        ca=readable(AUTHORITY, authority) if authority else None,
        encode=settings.get(_ENCODE, "").strip().lower() == "true",
    )


def of_jaas(options: Mapping[str, str]) -> dict[str, str]:
    """Return the client settings that replace these options of `OAuthBearerLoginModule`.

    The options come from `sasl.jaas.config`; the keys of the result are `sasl.oauthbearer.…`.

    Raises:
        SettingError: the options ask for unsigned tokens.
    """
    if any(name.startswith("unsecured") for name in options):
        raise SettingError(f"sasl.jaas.config: {NO_UNSIGNED}.")
    names = {"clientId": CLIENT, "clientSecret": SECRET, "scope": SCOPE}
    found = {key: options[name] for name, key in names.items() if name in options}
    extensions = [
        f"{name.removeprefix('extension_')}={value}"
        for name, value in options.items()
        if name.startswith("extension_")
    ]
    return found | ({EXTENSIONS: ",".join(extensions)} if extensions else {})


def readable(key: str, name: str) -> str:
    """Return the file path `name` with `~` expanded; `key` is the setting that holds it.

    Raises:
        SettingError: it is no regular file, or cannot be read.
    """
    path = expanded(name)
    try:
        with opened(path) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(EINVAL, "it is no regular file")
            return str(path)
    except OSError as error:
        raise SettingError(f"{key}: cannot read the file: {error.strerror}.") from None


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.isalpha() or not value.isprintable():
            raise SettingError(f"{EXTENSIONS}: expected name=value, and a comma between two.")
        found.append((name, value))
    return tuple(found)


_CONFIG: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>(?:\s+[\w.]+\s*=\s*"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;\"']+))*)\s*;\s*\Z",
    re.DOTALL,
)
_OPTION: Final = re.compile(
    r"([\w.]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;\"']+)", re.DOTALL
)
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}
MSK_IAM: Final = "AWS_MSK_IAM"
MSK_IAM_CLASSES: Final = "software.amazon.msk.auth.iam."
USE_OAUTHBEARER: Final = (
    f"{MSK_IAM} needs AWS's Java classes, which cannot be loaded here. The same IAM listener (port "
    f"9098) accepts {OAUTHBEARER}: write a token of aws-msk-iam-sasl-signer to a file and add "
    f"-X security.protocol=SASL_SSL -X sasl.mechanism={OAUTHBEARER} -X {URL}=file:///PATH."
)


def parse_jaas(text: str, mechanism: str | None) -> dict[str, str]:
    """Return the login settings of a `sasl.jaas.config` line.

    Supported are `PlainLoginModule`, `ScramLoginModule` and `OAuthBearerLoginModule`. `mechanism`
    is `sasl.mechanism` (None: not set yet); the login module must serve it.

    Raises:
        SettingError: another login module, a module that does not serve the mechanism, or text that
            is no JAAS line. The text is never shown: it holds the password.
    """
    match = _CONFIG.match(text)
    if match is None:
        raise SettingError(
            "sasl.jaas.config: expected one line such as `org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="…" password="…";` (mind the semicolon).'
        )
    module = match["module"].rsplit(".", 1)[-1]
    if module == "Krb5LoginModule":
        raise SettingError(
            "sasl.jaas.config: Krb5LoginModule (Kerberos (GSSAPI)) is not supported: use a "
            "listener with PLAIN, SCRAM, OAUTHBEARER or mutual TLS."
        )
    if module not in _MODULES:
        raise SettingError(
            "sasl.jaas.config: the login module is not known: use PlainLoginModule, "
            "ScramLoginModule or OAuthBearerLoginModule."
        )
    if mechanism is not None and mechanism not in _MODULES[module]:
        raise SettingError(
            f"sasl.jaas.config: {module} does not serve sasl.mechanism={mechanism}: "
            f"it serves {' and '.join(_MODULES[module])}."
        )
    options = {
        key: re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[0] in "\"'" else text
        for key, text in _OPTION.findall(match["options"])
    }
    if _MODULES[module] == (OAUTHBEARER,):
        return of_jaas(options)
    for needed in ("username", "password"):
        if needed not in options:
            raise SettingError(f"sasl.jaas.config: {module} needs {needed}=….")
    return {f"sasl.{name}": options[name] for name in ("username", "password")}
