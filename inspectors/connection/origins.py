"""The places where connection settings came from: files, profile, variables, options; no values."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rebal.groups.model import Record
from rebal.inspectors.connection.config import ENV_PREFIX, config_path, profile_of, profiles
from rebal.inspectors.errors import SettingError


class Origins(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The sources of one connection's settings, by name; values are left out.

    `config_file` is the user's configuration file (`exists`: it is there), `profiles` are those in
    it and `profile` is the one that was read. `properties` is the client.properties file;
    `named_by` says what named it: an option, a variable or the profile.
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
    """Return where the settings of `resolve` (config.py) come from, for the same arguments."""
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
