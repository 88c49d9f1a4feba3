"""`sasl.jaas.config`: which login module it names, with which options."""

from __future__ import annotations

import re
from typing import Final

from rebal.inspectors.connection.oauth import MECHANISM, of_jaas
from rebal.inspectors.kafka.errors import SettingError

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
    "OAuthBearerLoginModule": (MECHANISM,),
}
_REFUSED: Final = {
    "Krb5LoginModule": "Kerberos (GSSAPI)",
    "IAMLoginModule": "AWS_MSK_IAM",
}


def parse_jaas(text: str, mechanism: str | None) -> dict[str, str]:
    """The login of a `PlainLoginModule`, `ScramLoginModule` or `OAuthBearerLoginModule` line.

    `mechanism` is `sasl.mechanism` (None: not set yet); the module must be the one it needs.

    Raises:
        SettingError: another login module (named), a module that does not fit the mechanism, or
            text that is not a JAAS line. The text itself is never shown: it holds the password.
    """
    match = _CONFIG.match(text)
    if match is None:
        raise SettingError(
            "sasl.jaas.config: expected one line such as `org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="…" password="…";` (mind the semicolon).'
        )
    module = match["module"].rsplit(".", 1)[-1]
    if module in _REFUSED:
        raise SettingError(
            f"sasl.jaas.config: {module} ({_REFUSED[module]}) is not supported: use a listener "
            "with PLAIN, SCRAM, OAUTHBEARER or mutual TLS."
        )
    if module not in _MODULES:
        raise SettingError(
            f"sasl.jaas.config: the login module {match['module']} is not known: "
            "use PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule."
        )
    if mechanism is not None and mechanism not in _MODULES[module]:
        raise SettingError(
            f"sasl.jaas.config: {module} does not serve sasl.mechanism={mechanism}: "
            f"it serves {' and '.join(_MODULES[module])}."
        )
    options = {key: _unquote(value) for key, value in _OPTION.findall(match["options"])}
    if _MODULES[module] == (MECHANISM,):
        return of_jaas(options)
    for needed in ("username", "password"):
        if needed not in options:
            raise SettingError(f"sasl.jaas.config: {module} needs {needed}=….")
    return {f"sasl.{name}": options[name] for name in ("username", "password")}


def _unquote(value: str) -> str:
    if value[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
    return value
