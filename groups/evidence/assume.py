"""Assignor lists that the user states where no evidence shows them (`--assume`).

A text is `SELECTOR=ID:LIST`, such as `client-id=billing:range,cooperative-sticky`. The selector is
`client-id` (one member has it), `every-client-id` (all members that have it), `instance-id` or
`member-id`. LIST is in order of preference. An assumption fills a gap and never overrules evidence.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import assignor_of
from rebal.groups.errors import AssumptionError
from rebal.groups.evidence.bounds import contradictions
from rebal.groups.model import (
    AssignorList,
    Evidence,
    GroupSnapshot,
    Knowledge,
    Member,
    Source,
)

EVERY_CLIENT_ID: Final = "every-client-id"
_SELECTORS: Final = ("client-id", EVERY_CLIENT_ID, "instance-id", "member-id")


def apply_assumptions(
    snapshot: GroupSnapshot, texts: Iterable[str]
) -> tuple[GroupSnapshot, tuple[str, ...]]:
    """Return `snapshot` with the assumed lists, and one sentence for each assumption.

    The sentences are for `Plan.assumptions`. An assumption that only repeats what evidence shows
    changes nothing and gives no sentence. Without texts the snapshot is returned as it is.

    Raises:
        AssumptionError: a text cannot be read, matches no member, or contradicts evidence.
    """
    said = list(dict.fromkeys(texts))
    if not said:
        return snapshot, ()
    group = snapshot.group
    if not snapshot.has_assignor_lists or group.protocol_type not in (
        "consumer",
        None,
    ):
        raise AssumptionError(
            f"--assume {said[0]}: only members of classic consumer groups have assignor lists, and "
            f"{group.group_id} is not such a group: leave --assume out."
        )
    lists: dict[str, tuple[str, tuple[str, ...]]] = {}
    sentences: list[str] = []
    for text in said:
        selector, value, names = _read(text, snapshot)
        open_ = [
            member
            for member in _chosen(text, selector, value, snapshot.members)
            if not _shown_already(text, member, names)
        ]
        for member in open_:
            other, before = lists.setdefault(member.member_id, (text, names))
            if before != names:
                raise AssumptionError(
                    f"--assume {text}: --assume {other} gives {member.member_id} another list: "
                    "keep one of the two."
                )
        if open_:
            sentences.append(_sentence(selector, value, names, len(open_)))
    known = {
        member_id: AssignorList(
            knowledge=Knowledge.EXACT,
            list=names,
            evidence=(Evidence(source=Source.ASSUMED, detail=text),),
        )
        for member_id, (text, names) in lists.items()
    }
    made = replace(
        snapshot,
        members=tuple(
            replace(member, assignors=known.get(member.member_id, member.assignors))
            for member in snapshot.members
        ),
    )
    _hold_against_evidence(snapshot, made, said, lists)
    return made, tuple(sentences)


def _read(text: str, snapshot: GroupSnapshot) -> tuple[str, str, tuple[str, ...]]:
    """Return selector, id and list; ids may hold `=`, `:` and commas, names no colon."""
    selector, _, rest = text.partition("=")
    value, _, listed = rest.rpartition(":")
    names = [name.strip() for name in listed.split(",")]
    if selector not in _SELECTORS or not value or not all(names):
        raise AssumptionError(
            f"--assume: expected {'|'.join(_SELECTORS)}=ID:LIST, such as "
            "client-id=billing:range,cooperative-sticky (yours is not repeated here)."
        )
    lists = [member.assignors for member in snapshot.members]
    met = {name for one in lists for name in (*one.list, *one.at_least, *one.lacks)}
    met |= {snapshot.group.assignor} if snapshot.group.assignor else set()
    plain = [name if name in met else assignor_of(name) for name in names]
    for name, known in zip(names, plain, strict=True):
        if known is None:
            raise AssumptionError(
                f"--assume {text}: {name} is no assignor that Kafka's clients or this group have; "
                "use the names that rebal inspect prints, such as range or cooperative-sticky."
            )
    found = tuple(filter(None, plain))
    if len(set(found)) < len(found):
        raise AssumptionError(f"--assume {text}: an assignor stands in it twice: name each once.")
    return selector, value, found


def _chosen(
    text: str, selector: str, value: str, members: tuple[Member, ...]
) -> tuple[Member, ...]:
    field = {"instance-id": "instance_id", "member-id": "member_id"}.get(selector, "client_id")
    found = tuple(member for member in members if getattr(member, field) == value)
    if not found:
        raise AssumptionError(
            f"--assume {text}: no member has the {field.replace('_', ' ')} {value}; rebal inspect "
            "shows the ids of those that are in the group."
        )
    if selector == "client-id" and len(found) > 1:
        raise AssumptionError(
            f"--assume {text}: {len(found)} members share this client id; if all of them have "
            f"this list say {EVERY_CLIENT_ID}=…, else name each by instance-id or member-id."
        )
    return found


def _shown_already(text: str, member: Member, names: tuple[str, ...]) -> bool:
    """Return whether evidence shows this very list; raise if it shows another one."""
    known = member.assignors
    if known.knowledge is Knowledge.EXACT:
        if known.list == names:
            return True
        sources = ", ".join(sorted({item.source for item in known.evidence})) or "evidence"
        raise AssumptionError(
            f"--assume {text}: the {sources} shows that {member.member_id} runs "
            f"[{', '.join(known.list)}], and an assumption does not overrule it: leave it out."
        )
    if lacked := [name for name in names if name in known.lacks]:
        raise AssumptionError(
            f"--assume {text}: it is proven that {member.member_id} has no {', '.join(lacked)}, "
            "and an assumption does not overrule that: leave it out."
        )
    if missing := [name for name in known.at_least if name not in names]:
        raise AssumptionError(
            f"--assume {text}: it is proven that {member.member_id} has {', '.join(missing)}: "
            "say the whole list."
        )
    return False


def _hold_against_evidence(
    before: GroupSnapshot,
    after: GroupSnapshot,
    said: list[str],
    lists: dict[str, tuple[str, tuple[str, ...]]],
) -> None:
    """Raise if an assumption makes evidence contradict itself that did not before."""
    known = {
        (item.member_id, item.what) for item in (*before.contradictions, *contradictions(before))
    }
    for item in contradictions(after):
        if (item.member_id, item.what) not in known:
            text = lists[item.member_id][0] if item.member_id in lists else said[0]
            raise AssumptionError(
                f"--assume {text}: evidence contradicts it: {item.what}; leave it out or correct "
                "it."
            )


def _sentence(selector: str, value: str, names: tuple[str, ...], count: int) -> str:
    who = f"{selector.removeprefix('every-').replace('-', ' ')} {value}"
    every = f"every member with {who} ({count})" if selector == EVERY_CLIENT_ID else who
    return f"{every} runs [{', '.join(names)}]"
