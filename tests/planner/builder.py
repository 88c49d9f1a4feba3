"""Groups in shorthand, for the rules' case files and the planner's tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from rebal.groups.compact import Partitions
from rebal.groups.model import (
    AssignorList,
    Cluster,
    Contradiction,
    Coordinator,
    CoordinatorKind,
    DeclaredAssignors,
    Departed,
    Evidence,
    Group,
    GroupSnapshot,
    GroupState,
    GroupType,
    Knowledge,
    Member,
    Probe,
    ProbeAnswer,
    RanProtocol,
    RebalanceProtocol,
    Refusal,
    Software,
    Source,
    Subscription,
    Timeouts,
    Topic,
    Tri,
)
from rebal.groups.wire.consumer_protocol import StickyUserData, encode_sticky
from rebal.planner.context import Context

AT = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
TRI = {True: Tri.YES, False: Tri.NO, None: Tri.CANNOT_TELL}

NEVER_NULL = ("librdkafka", "kafka-python", "kafkajs", "aiokafka", "segmentio")
"""Clients whose user data for range is empty, never null."""


def seen(source: Source, detail: str = "") -> Evidence:
    return Evidence(source=source, at=AT, detail=detail)


def group_of(spec: dict[str, Any]) -> GroupSnapshot:
    """A snapshot from shorthand.

    `members`: `{id, list | at_least | lacks, family, version, guess, instance, owned, declared,
    topics, protocol_type, rack, regex, bytes (version of the subscription; null: not read),
    mislabelled (v0 bytes marked as v1), since (when it was built), written and created (its file)
    joined and first (its first join; else joined), in minutes after `AT`,
    assigned_data, sticky (the generation in its user data), surge, upgrade_from, ran, classic_only,
    idle, epoch, timeouts: [session, rebalance] in ms, session (of its file, in ms)}`;
    `cluster: {version, settings, features}`;
    `departed: {id, instance, list, classes, left, at}`;
    `reloaded` and `probe: {assignor: true | false | null}` in YAML's
    three values; `topics: {name: partitions}`.
    """
    topics = spec.get("topics", {"orders": 12})
    members = spec.get("members", [])
    per = max(1, 12 // max(1, len(members)))
    probe = spec.get("probe")
    reloaded = spec.get("reloaded")
    return GroupSnapshot(
        group=Group(
            group_id=spec.get("group_id", "checkout"),
            state=GroupState(spec.get("state", "Stable")),
            type=GroupType(spec.get("type", "classic")),
            protocol_type=spec.get("protocol_type", "consumer"),
            assignor=spec.get("elected", "range"),
            generation=spec.get("generation"),
            coordinator=Coordinator(
                broker_id=2,
                kind=CoordinatorKind.JAVA,
                rebalanced_since_load=TRI[None if reloaded is None else not reloaded],
            ),
        ),
        captured_at=AT,
        cluster=Cluster(**spec.get("cluster", {})),
        members=tuple(member_of(m, n, per, topics) for n, m in enumerate(members)),
        topics=tuple(Topic(name=name, partitions=n) for name, n in topics.items() if n),
        probe=Probe(
            answers=tuple(
                ProbeAnswer(assignor=name, supported=TRI[answer], at=AT)
                for name, answer in probe.items()
            )
        )
        if probe is not None
        else None,
        refusals=tuple(
            Refusal(
                at=_minutes(r.get("at", 0)),
                client_id=r.get("client", ""),
                instance_id=r.get("instance"),
                error=r.get("error", "INCONSISTENT_GROUP_PROTOCOL"),
                host=r.get("host", ""),
                list=tuple(r["list"]),
                evidence=seen(Source.REQUEST_LOG),
            )
            for r in spec.get("refusals", [])
        ),
        departed=tuple(
            Departed(
                member_id=f"{d['id']}-0f0f",
                client_id=d.get("client", d["id"]),
                instance_id=d.get("instance"),
                list=tuple(d.get("list", ())),
                classes=tuple(d.get("classes", ())),
                last_seen=_minutes(d["at"]),
                left=d.get("left", False),
                left_at=_minutes(d["at"]) if d.get("left") else None,
                evidence=seen(Source.REQUEST_LOG),
            )
            for d in spec.get("departed", [])
        ),
        contradictions=tuple(
            Contradiction(
                member_id=c.get("member"),
                what=c["what"],
                evidence=(seen(Source.REQUEST_LOG), seen(Source.CLIENT_LOG)),
            )
            for c in spec.get("contradictions", [])
        ),
        expected_members=spec.get("expected"),
    )


def _minutes(after: int | None) -> datetime | None:
    return None if after is None else AT + timedelta(minutes=after)


def member_of(m: dict[str, Any], number: int, per: int, topics: dict[str, int]) -> Member:
    log = seen(Source.REQUEST_LOG)
    if "list" in m:
        assignors = AssignorList(
            knowledge=Knowledge.EXACT, list=tuple(m["list"]), since=_minutes(m.get("since")),
            evidence=(log,),
        )  # fmt: skip
    elif "at_least" in m or "lacks" in m:
        assignors = AssignorList(
            knowledge=Knowledge.BOUNDED,
            at_least=tuple(m.get("at_least", ())),
            lacks=tuple(m.get("lacks", ())),
            evidence=(seen(Source.DESCRIBE),),
        )
    else:
        assignors = AssignorList()
    guess = m.get("guess", False)
    family = m.get("family", "java")
    version = m.get("version")
    software = None
    if family:
        software = Software(
            family=family,
            name=None if guess else family,
            version=None if guess else version or "3.9.1",
            version_range=m.get("left"),
            evidence=(seen(Source.SUBSCRIPTION) if guess else log,),
        )
    elif "left" in m:
        software = Software(version_range=m["left"], evidence=(seen(Source.SUBSCRIPTION),))
    mine = Partitions(range(number * per, number * per + per))
    return Member(
        member_epoch=m.get("epoch"),
        member_id=f"{m['id']}-0f0f",
        client_id=m.get("client", m["id"]),
        host=m.get("host", "/10.0.0.1"),
        instance_id=m.get("instance"),
        software=software,
        assignors=assignors,
        declared=DeclaredAssignors(
            list=tuple(m["declared"]),
            group_protocol=m.get("group_protocol"),
            classic_only=tuple(m.get("classic_only", ())),
            session_timeout_ms=m.get("session"),
            max_surge=m.get("surge"),
            upgrade_from=m.get("upgrade_from"),
            created_at=_minutes(m.get("created")),
            evidence=replace(
                seen(Source.CONFIG_FILE, "app.properties"), at=_minutes(m.get("written"))
            ),
        )
        if "declared" in m
        else None,
        ran=RanProtocol(
            value=RebalanceProtocol(m["ran"]), upgrade_from=m.get("printed"), evidence=(log,)
        )
        if "ran" in m
        else None,
        timeouts=Timeouts(
            session_ms=m["timeouts"][0], rebalance_ms=m["timeouts"][1], evidence=(log,)
        )
        if "timeouts" in m
        else None,
        subscription=Subscription(
            version=m.get("bytes", 1),
            topics=tuple(m.get("topics", topics)),
            owned_partitions=None
            if m.get("mislabelled")
            else ({"orders": mine} if m.get("owned") else {}),
            user_data=encode_sticky(
                StickyUserData(previous=(("orders", number),), generation=m["sticky"])
            )
            if "sticky" in m
            else b""
            if m.get("family") in NEVER_NULL or m.get("empty")
            else None,
        )
        if m.get("bytes", 1) is not None
        else None,
        assignment_user_data=m["assigned_data"].encode() if "assigned_data" in m else None,
        rack=m.get("rack"),
        subscribed_regex=m.get("regex"),
        assignment={} if m.get("idle") else {"orders": mine},
        protocol_type=m.get("protocol_type"),
        joined_at=_minutes(m.get("joined")),
        first_joined_at=_minutes(m.get("first", m.get("joined"))),
    )


def context_of(spec: dict[str, Any], **more: Any) -> Context:
    goal = spec.get("goal", "cooperative")
    return Context(
        group_of(spec),
        goal=goal,
        target=spec.get("target", "range" if goal == "eager" else "cooperative-sticky"),
        planning=spec.get("planning", False),
        expect_members=spec.get("expect_members"),
        families=spec.get("families"),
        client=spec.get("client"),
        **more,
    )
