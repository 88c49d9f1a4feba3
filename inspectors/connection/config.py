"""Connection settings of a cluster: `resolve` merges all sources, `origins_of` names the sources.

The first of these sources that sets a key wins: flags (-b, --command-config, --profile, --timeout),
`-X key=value`, the environment, the profile, the client.properties file.

Environment variables are REBAL_BOOTSTRAP, REBAL_COMMAND_CONFIG, REBAL_PROFILE, REBAL_CONFIG (the
path of the user's config file) and REBAL_X_ followed by any key of client.properties in capitals,
with `_` for `.`: REBAL_X_SASL_PASSWORD sets `sasl.password`.

The user's config file is YAML, by default `~/.config/rebal/config.yaml`:

    profiles:
      prod:
        bootstrap.servers: kafka-1:9092
        command-config: ~/prod.properties
        security.protocol: SASL_SSL
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import yaml

from rebal.groups.model import Record
from rebal.inspectors.connection.auth import OAuth, Secretive
from rebal.inspectors.connection.properties import parse_properties
from rebal.inspectors.connection.settings import Pem, Settings, layer, merge, typed
from rebal.inspectors.errors import SettingError
from rebal.inspectors.files import expanded, read_text

CLIENT_ID: Final = "rebal"
ENV_PREFIX: Final = "REBAL_X_"

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


class ClusterConfig(Secretive, frozen=True, kw_only=True):
    """The connection settings of one cluster, secrets included; its repr leaves the secrets out.

    `timeout_ms` is the total time of one operation. `ca`, `certificate` and `key` are PEM, in a
    file or inline. `oauth` is the token source of OAUTHBEARER, which has no user name.
    """

    bootstrap: str
    timeout_ms: int = 10_000
    protocol: Protocol = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    oauth: OAuth | None = None
    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str | None = None
    verify_hostname: bool = True

    def __repr__(self) -> str:
        login = f", {self.mechanism}" if self.mechanism else ""
        return f"ClusterConfig({self.bootstrap}, {self.protocol}{login}, {self.timeout_ms} ms)"

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """True if the client logs in with SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap servers as pairs of host and port."""
        return parse_servers(self.bootstrap)

    def scrub(self, text: str) -> str:
        """Return the text of a Kafka client library with each secret of these settings masked."""
        secrets = [
            self.password,
            self.key_password,
            self.oauth.client_secret if self.oauth else None,
        ]
        secrets += [pem.inline for pem in (self.key, self.certificate, self.ca) if pem]
        for secret in filter(None, secrets):
            text = text.replace(secret, "[secret]")
        return text


def resolve(  # noqa: PLR0917 - the sources of settings, in no order of rank
    bootstrap: str | None,
    overrides: Sequence[str],
    command_config: Path | None,
    profile: str | None,
    env: Mapping[str, str],
    timeout_ms: int,
) -> ClusterConfig:
    """Return the connection settings, merged from all their sources.

    If several sources set a key, the first of these wins: `bootstrap` (-b), `overrides` (-X), the
    environment `env`, the profile, the properties file.

    Raises:
        SettingError: a file that cannot be read, an unknown key, a wrong value, a setting without
            support, or no bootstrap server.
    """
    if timeout_ms < 1:
        raise SettingError("--timeout: expected a time above zero.")
    section = profile_of(profile or env.get("REBAL_PROFILE") or None, env)
    from_profile = section.pop("command-config", None)
    path = command_config or _path(env.get("REBAL_COMMAND_CONFIG")) or _path(from_profile)
    layers = [layer(_read(path, "--command-config"), str(path))] if path is not None else []
    layers += [
        layer(section, f"profile {profile or env.get('REBAL_PROFILE')}"),
        layer(_from_env(env), "environment"),
        in_effect(overrides),
        {"bootstrap.servers": bootstrap} if bootstrap else {},
    ]
    merged = merge(layers)
    servers = merged.pop("bootstrap.servers", "").strip()
    if not servers:
        raise SettingError(
            "no bootstrap server: give -b HOST:PORT, REBAL_BOOTSTRAP, a profile, or "
            "bootstrap.servers in the --command-config file."
        )
    parse_servers(servers)
    return ClusterConfig(bootstrap=servers, timeout_ms=timeout_ms, **typed(merged))


def check_typed(bootstrap: str | None, overrides: Sequence[str]) -> None:
    """Check the options -b and -X before rebal repeats them in messages or printed commands.

    Raises:
        SettingError: a login in an address, a -X that is no key=value, or an unknown key.
    """
    for text in (bootstrap, in_effect(overrides).get("bootstrap.servers")):
        if text and "@" in text:
            parse_servers(text)


def in_effect(overrides: Sequence[str]) -> Settings:
    """Return key → value of the -X options (`key=value`), without keys that rebal ignores.

    Raises:
        SettingError: a text that is no key=value, or a key that is unknown or not supported.
    """
    found: dict[str, str] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            # Not repeated: it may be a password that was typed without its key.
            raise SettingError("-X: expected key=value, such as -X security.protocol=SASL_SSL.")
        found[key.strip()] = value
    return layer(found, "-X")


def names_brokers(command_config: Path | None, overrides: Sequence[str]) -> bool:
    """Return whether the --command-config file or -X sets bootstrap.servers.

    Raises:
        SettingError: the file cannot be read, or a setting cannot be used.
    """
    file = _read(command_config, "--command-config") if command_config else {}
    return any(
        "bootstrap.servers" in each
        for each in (layer(file, "--command-config"), in_effect(overrides))
    )


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports in `"a:9092, [::1]:9093, SSL://b"`; the default port is 9092.

    Raises:
        SettingError: an entry is not HOST:PORT, or there is none; the message does not repeat the
            text.
    """
    if "@" in text:
        raise SettingError(
            "bootstrap servers: an address holds no user name or password (yours is not repeated "
            "here). Give HOST:PORT, and the login as sasl.username and REBAL_X_SASL_PASSWORD."
        )
    found: list[tuple[str, int]] = []
    for number, entry in enumerate((part.strip() for part in text.split(",")), 1):
        if not entry:
            continue
        address = entry.rsplit("://", 1)[-1]
        if address.startswith("["):
            host, _, port = address[1:].partition("]")
            port = port.removeprefix(":")
        elif address.count(":") > 1:
            host, port = address, ""
        else:
            host, _, port = address.partition(":")
        at = int(port) if port.isascii() and port.isdigit() else (9092 if not port else 0)
        if not host or not 0 < at < 65536:
            raise SettingError(f"bootstrap server {number}: expected HOST:PORT.")
        found.append((host, at))
    if not found:
        raise SettingError("the list of bootstrap servers is empty: give -b HOST:PORT.")
    return tuple(found)


def _path(text: str | None) -> Path | None:
    return expanded(text) if text else None


def _read(path: Path, what: str) -> dict[str, str]:
    try:
        text = read_text(path)
    except OSError as error:
        raise SettingError(f"{what}: cannot read {path}: {error.strerror}.") from None
    return parse_properties(text, path.name)


def _from_env(env: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(ENV_PREFIX).lower().replace("_", "."): value
        for name, value in sorted(env.items())
        if name.startswith(ENV_PREFIX)
    }
    if env.get("REBAL_BOOTSTRAP"):
        found["bootstrap.servers"] = env["REBAL_BOOTSTRAP"]
    return found


def config_path(env: Mapping[str, str]) -> Path:
    """Return the path of the user's configuration file, whether it exists or not.

    It is REBAL_CONFIG, else `rebal/config.yaml` in XDG_CONFIG_HOME, else in `~/.config`. A relative
    XDG_CONFIG_HOME is ignored, as the XDG specification demands.
    """
    given = expanded(env.get("XDG_CONFIG_HOME") or "")
    base = given if given.is_absolute() else expanded("~/.config")
    return _path(env.get("REBAL_CONFIG")) or base / "rebal" / "config.yaml"


def profiles(env: Mapping[str, str]) -> list[str]:
    """Return the names of the profiles in the user's configuration file; empty if there is no file.

    Raises:
        SettingError: the file cannot be read, or is not YAML.
    """
    path = config_path(env)
    return [str(name) for name in _sections(path, path)] if path.exists() else []


def profile_of(name: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the profile `name` in the user's configuration file.

    If `name` is None or empty, the result is empty.

    Raises:
        SettingError: the file cannot be read, or has no such profile.
    """
    if not name:
        return {}
    path = config_path(env)
    sections = _sections(path, f"--profile {name}")
    section = sections.get(name)
    if not isinstance(section, dict):
        known = ", ".join(map(str, sections)) or "none"
        raise SettingError(f"{path}: no profile {name!r}; it has: {known}.")
    found: dict[str, str] = {}
    for key, value in section.items():
        if not (isinstance(value, str) and value):
            raise SettingError(f"{path}: profiles.{name}.{key}: expected one value.")
        text = value.lower() if value.lower() in ("true", "false") else value
        found["bootstrap.servers" if key == "bootstrap" else str(key)] = text
    return found


def _sections(path: Path, what: object) -> dict[object, object]:
    """Return the section `profiles` of the user's configuration file: profile name → settings.

    If the file cannot be read, the message begins with `what`: the option that needs it, or its
    path.

    Raises:
        SettingError: the file cannot be read, is not YAML, or has no such section.
    """
    try:
        # Each value stays the text that stands there: a password 0123 is no octal number.
        body = yaml.load(read_text(path), Loader=yaml.BaseLoader)
    except OSError as error:
        raise SettingError(
            f"{what}: cannot read {path}: {error.strerror} (REBAL_CONFIG sets the path)."
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise SettingError(f"{path}: not valid YAML{where}.") from None
    profiles = body.get("profiles") if isinstance(body, dict) else None
    if not isinstance(profiles, dict):
        raise SettingError(f"{path}: expected a section `profiles:` with one entry per profile.")
    return profiles


class Origins(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The names of the sources that one connection's settings come from, without any value.

    `config_file` is the user's configuration file (`exists`: whether it is there), `profiles` are
    the profiles in it, and `profile` is the chosen one. `properties` is the client.properties file,
    and `named_by` is the option, variable or profile that names it. `variables` are rebal's
    environment variables that are set, `options` the command-line options.
    """

    config_file: str
    exists: bool
    profiles: tuple[str, ...] = ()
    profile: str | None = None
    properties: str | None = None
    named_by: str | None = None
    variables: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def origins_of(
    *,
    bootstrap: str | None,
    overrides: Sequence[str],
    command_config: Path | None,
    profile: str | None,
    env: Mapping[str, str],
) -> Origins:
    """Return the names of the sources that `resolve` merges for the same arguments."""
    path = config_path(env)
    chosen = profile or env.get("REBAL_PROFILE") or None
    named = (
        (command_config, "--command-config"),
        (env.get("REBAL_COMMAND_CONFIG"), "REBAL_COMMAND_CONFIG"),
        (profile_of(chosen, env).get("command-config"), f"the profile {chosen}"),
    )
    file, by = next(((str(each), by) for each, by in named if each), (None, None))
    try:
        known = profiles(env)
    except SettingError:
        # Without a profile the file is not read, so its faults are none of this connection.
        known = []
    return Origins(
        config_file=str(path),
        exists=path.exists(),
        profiles=tuple(known),
        profile=chosen,
        properties=file,
        named_by=by,
        variables=tuple(
            name
            for name in sorted(env)
            if name.startswith(ENV_PREFIX)
            or name in ("REBAL_BOOTSTRAP", "REBAL_COMMAND_CONFIG", "REBAL_PROFILE", "REBAL_CONFIG")
        ),
        options=(
            *(["-b"] if bootstrap else []),
            *(["--command-config"] if command_config else []),
            *(["--profile"] if profile else []),
            *(f"-X {pair.partition('=')[0].strip()}" for pair in overrides),
        ),
    )
