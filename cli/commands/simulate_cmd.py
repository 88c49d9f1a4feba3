"""`rebal simulate`: the assignment that another assignor computes for a group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rebal.cli import params
from rebal.cli.errors import UsageError, check_known

if TYPE_CHECKING:
    from rebal.groups.assignors import Assignor

# The first four are the names in rebal.groups.assignors, which loads the assignors themselves.
OF_CONSUMERS: Final = (
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "uniform",
    "consumer:range",
)
OF_WORKERS: Final = ("eager", "compatible", "sessioned")
_MOST_ADDED: Final = 100_000
# Java's default of max.poll.interval.ms, in seconds.
_MAX_POLL: Final = 300.0
_MOST_PARTITIONS: Final = 10_000_000


def command(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group to read live.")
    ] = None,
    *,
    assignors: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            metavar="NAME",
            help=f"One of: {', '.join(OF_CONSUMERS)}, or an installed one; of Connect "
            f"workers: {', '.join(OF_WORKERS)}. Repeat to compare.",
        ),
    ] = None,
    snapshot: params.Snapshot = None,
    add_member: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=_MOST_ADDED, help="N more members join."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC,...", help="Topics of added members (default: as the others)."),
    ] = None,
    remove_member: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="This member leaves; repeat for more.")
    ] = None,
    restart_member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="This member is restarted; repeat to restart one after another."
        ),
    ] = None,
    add_partitions: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC=N", help="N more partitions for a topic.")
    ] = None,
    add_topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC=N", help="A new topic of N partitions.")
    ] = None,
    rack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[MEMBER=]RACK",
            help="A member's rack; without MEMBER, that of the added members.",
        ),
    ] = None,
    rebalance_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, help="The members' max.poll.interval.ms, in seconds."
        ),
    ] = _MAX_POLL,
    connection: params.Connection,
    evidence: Annotated[params.EvidenceOptions, "assignors"],
    form: params.Output = "text",
    wide: params.Wide = False,
) -> int:
    """Simulate an assignor on a group: the partitions each member keeps, loses and gets.

    They are exactly those that the Java client 4.1.1 assigns (uniform and consumer:range: the
    coordinator of Kafka 4.1.1). Nothing moves: the group is read live, or from a snapshot.
    Exits with 3 when the real leader would fail, the group never becomes stable, or an assignor
    breaks its contract.
    """
    names = tuple(dict.fromkeys(map(params.assignor_name, assignors or ())))
    custom = _check_names(names)
    # What follows from the words alone is said before anything is read.
    asked = _pairs(add_partitions, "--add-partitions"), _pairs(add_topic, "--add-topic")
    from rebal.cli import simulating, sources
    from rebal.planner.rehearsal.whatif.changes import Changes

    source = sources.GroupSource(group, snapshot, connection, evidence).named()
    found = source.read()
    where = str(source.snapshot or "live")
    given = connection.given(evidence=evidence.option_words, snapshot=source.snapshot)
    if set(names) & set(OF_WORKERS):
        if any((add_member, topics, remove_member, add_partitions, add_topic, rack)):
            raise UsageError("of the what-ifs, only --restart-member applies to Connect workers.")
        return simulating.simulate_restarts(
            found, names, restart_member or (), where=where, given=given, form=form, wide=wide
        )
    return simulating.simulate_assignors(
        found,
        names,
        Changes(
            add_members=add_member or 0,
            add_member_topics=tuple(t for text in topics or () for t in text.split(",") if t),
            remove_members=tuple(remove_member or ()),
            restart_members=tuple(restart_member or ()),
            add_partitions=asked[0],
            add_topics=asked[1],
            racks=_racks(rack or ()),
        ),
        where=where,
        given=given,
        form=form,
        wide=wide,
        custom=custom,
        rebalance_timeout=rebalance_timeout,
    )


def _check_names(names: Sequence[str]) -> dict[str, "Assignor"]:
    if not names:
        raise UsageError(f"no assignor is named: add --assignor {'|'.join(OF_CONSUMERS)}.")
    workers = set(names) & set(OF_WORKERS)
    if workers and workers != set(names):
        raise UsageError(
            f"--assignor {sorted(workers)[0]} is for Connect workers: it cannot be combined with "
            "assignors of consumers."
        )
    own = {*OF_CONSUMERS, *OF_WORKERS, "consumer:uniform"}
    if own.issuperset(names):
        return {}
    from rebal.cli.custom import custom_assignors, custom_names

    found = custom_assignors([name for name in names if name not in own])
    known = (*OF_CONSUMERS, *custom_names())
    for name in (one for one in names if one not in own):
        check_known(
            name,
            known,
            f"--assignor {name[:100]}: no such assignor; there are {', '.join(known)}.",
        )
    return found


def _pairs(texts: Sequence[str] | None, option: str) -> dict[str, int]:
    made: dict[str, int] = {}
    for text in texts or ():
        topic, _, number = text.rpartition("=")
        known = topic and number.isascii() and number.isdigit() and len(number) < 9
        if not known or not 1 <= int(number) <= _MOST_PARTITIONS:
            raise UsageError(f"{option} {text[:60]}: write TOPIC=N, such as orders=12.")
        made[topic] = made.get(topic, 0) + int(number)
    return made


def _racks(texts: Sequence[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for text in texts:
        member, _, rack = text.rpartition("=")
        if not rack:
            raise UsageError(f"--rack {text[:60]}: write MEMBER=RACK, or RACK for added members.")
        made[member or "new"] = rack
    return made
