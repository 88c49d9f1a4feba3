"""What a person takes upon themselves: --expect-members, --assume, --assume-family, --ignore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from rebal.cli.errors import UsageError

ExpectMembers = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many members the service has in all.")
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHO=ID:LIST",
        help="A member's list that no evidence shows, as client-id=app-1:range; recorded.",
    ),
]
AssumeFamily = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[CLIENT_ID=]FAMILY",
        help="The client library of members that no evidence names; recorded.",
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="RULE", help="Do not count a rule; needs --reason; recorded."),
]


def sentences(
    families: Mapping[str, str], ignore: Mapping[str, str], expect_members: int | None
) -> tuple[str, ...]:
    """What was given with this very command, for the journal."""
    return (
        *(f"client id {key} is {family}" for key, family in families.items()),
        *(f"{rule} is ignored: {reason}" for rule, reason in ignore.items()),
        *([] if expect_members is None else [f"{expect_members} members are expected"]),
    )


def ignored(ids: Sequence[str], reasons: Sequence[str]) -> dict[str, str]:
    """Rule id → reason.

    Raises:
        UsageError: no such rule, or a reason is missing.
    """
    if not ids and not reasons:
        return {}
    from rebal.planner.rules import rules

    if not ids or len(reasons) not in (1, len(ids)) or not all(map(str.strip, reasons)):
        raise UsageError('--ignore RULE and --reason "…" go together: a reason for each rule.')
    wanted = [id_.upper() for id_ in ids]
    for id_ in wanted:
        if id_ not in rules():
            raise UsageError(f"--ignore {id_}: there is no such rule; rebal explain lists them.")
    given = [*reasons] * (len(ids) if len(reasons) == 1 else 1)
    return dict(zip(wanted, given, strict=True))


def families_of(texts: Sequence[str]) -> dict[str, str]:
    """Client id (or `*`) → client family.

    Raises:
        UsageError: no such family.
    """
    if not texts:
        return {}
    from rebal.groups.clients import families

    made = {}
    for text in texts:
        client_id, _, key = text.rpartition("=")
        if key not in families():
            known = ", ".join(families())
            raise UsageError(f"--assume-family {text}: {key or 'nothing'} is not one of {known}.")
        made[client_id or "*"] = key
    return made
