"""The sources of evidence that this user can read on this cluster: `examine` (`rebal doctor`).

Each source is tried, or the right to it is read from the user's authorized operations (KIP-430). A
group is only read, never probed. A missing right comes with the command that grants it.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final

from rebal.groups.commands import Command
from rebal.groups.model import GroupType, Record, Tri
from rebal.inspectors import clock
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.errors import ConnectError, RequestError, SettingError, error_name
from rebal.inspectors.kafka.cluster import RawCluster
from rebal.inspectors.kafka.describe import (
    Described,
    committed_offsets,
    describe,
    limited_to_topics,
)
from rebal.inspectors.kafka.probe import MIN_VERSION
from rebal.inspectors.kafka.reload import OFFSETS_TOPIC, rebalanced_since_load
from rebal.inspectors.kafka.session import Session, ahead_of_brokers
from rebal.inspectors.kafka.snapshots import own_settings, used_by
from rebal.inspectors.kafka.wire import Deadline, request_class

# AclOperation's codes, as answers list them among the authorized operations.
_READ, _DESCRIBE, _ALTER_CONFIGS = 3, 8, 11
_NO_GROUP: Final = "name a group to try it"


class DoctorRow(Record, frozen=True, kw_only=True):
    """One source of evidence: whether this user can read it (`available`), and `why`.

    `adds` names the facts that the source provides (empty for the row of the login).
    `grant` is the command that grants the missing right (empty: no right is missing).
    """

    source: str
    available: Tri
    why: str
    adds: str
    grant: str = ""


class DoctorReport(Record, frozen=True, kw_only=True):
    """The result of `rebal doctor`: one row for each source of evidence, readable or not.

    `principal` is Kafka's name of the user, if known. `coordinator_id` is the broker that
    coordinates the group (None: no group, or not known).
    """

    bootstrap: str
    principal: str
    group_id: str | None
    rows: tuple[DoctorRow, ...]
    coordinator_id: int | None = None

    @property
    def logged_in(self) -> bool:
        """Return whether the login, the first row, was accepted."""
        return self.rows[0].available is Tri.YES


def examine(config: ClusterConfig, group: str | None = None) -> DoctorReport:
    """Return a report on every source of evidence; with `group`, the group's sources are tried too.

    Raises:
        ConnectError: the cluster cannot be reached (a rejected login is a row).
    """
    with RawCluster(config, Deadline(config.timeout_ms)) as raw:
        found = _Examination(raw, group)
        rows = tuple(found.rows())
        return DoctorReport(
            bootstrap=config.bootstrap,
            principal=principal_of(config),
            group_id=group,
            rows=rows,
            coordinator_id=found.described.coordinator_id if found.described else None,
        )


class _Unavailable(Exception):  # noqa: N818 - a result of a trial, not a fault
    """Signal that a source of evidence cannot be read; its text says why.

    `available` is NO, or CANNOT_TELL if the source could not be tried. `right` is True if a right
    may be missing; only then the row of the source shows the command that grants it.
    """

    def __init__(self, available: Tri, why: str, *, right: bool = True) -> None:
        super().__init__(why)
        self.available = available
        self.right = right


class _Examination:
    def __init__(self, raw: RawCluster, group: str | None) -> None:
        self._raw = raw
        self._group = group
        self._session = Session(raw)
        self.described: Described | None = None
        self._denied = False

    def rows(self) -> Iterator[DoctorRow]:
        """Yield one row for each source of evidence; later rows use the results of earlier rows.

        If the login is rejected, no other source on the cluster is tried.
        """
        login = self._row("login", self._log_in, "")
        yield login
        if login.available is Tri.YES:
            yield from self._of_cluster()
        yield DoctorRow(
            source="client logs, config files",
            available=Tri.YES,
            why="they are files: no right on the cluster is needed",
            adds="exact lists of members that log, what the next start will use",
        )

    def _of_cluster(self) -> Iterator[DoctorRow]:
        group = ("--group", self._group or "GROUP")
        yield self._row(
            "list groups",
            lambda: self._cluster_right(
                _DESCRIBE, "only groups that this user may describe are listed",
                "all groups are listed",
            ),
            "--all and --match", "Describe", "--cluster",
        )  # fmt: skip
        yield self._row(
            "brokers' clock", self._clock, "how far this machine's clock is ahead of the brokers'",
            "Describe", "--cluster",
        )  # fmt: skip
        yield self._row(
            "describe the group", self._describe, "state, members, subscriptions",
            "Describe", *group,
        )  # fmt: skip
        names = self._group_topics() if self.described else []
        topics = [part for name in names or ["TOPIC"] for part in ("--topic", name)]
        yield self._row(
            "describe topics", self._topics, "partition counts, replicas", "Describe", *topics
        )
        yield self._row(
            "offsets and lag", self._offsets, "committed and end offsets",
            "Describe", *group, *topics,
        )  # fmt: skip
        yield self._row(
            "broker settings", self._settings, "limits of groups, KIP-848's migration policy",
            "DescribeConfigs", "--cluster",
        )  # fmt: skip
        own = own_settings(self._raw, [group[1]], self._raw.deadline()) if self._group else None
        if own is not None:
            yield self._row(
                "group settings", lambda: _counted(own.get(group[1])),
                "the session and heartbeat of a KIP-848 group", "DescribeConfigs", *group,
            )  # fmt: skip
        yield self._row(
            "probe", self._probe, "which assignors all members support now", "Read", *group
        )
        yield self._row(
            "offsets topic", self._offsets_topic,
            "whether a rebalance completed since the coordinator loaded the group",
            "Read", "--operation", "Describe", "--topic", OFFSETS_TOPIC,
        )  # fmt: skip
        yield self._row(
            "request log switch",
            lambda: self._cluster_right(
                _ALTER_CONFIGS, "no ALTER_CONFIGS on the cluster",
                "allowed: kafka-configs.sh sets the broker's logger",
            ),
            "every member's list at its next join (the log itself is on the broker)",
            "AlterConfigs", "--cluster",
        )  # fmt: skip

    def _row(self, source: str, trial: Callable[[], str], adds: str, *grant: str) -> DoctorRow:
        try:
            return DoctorRow(source=source, available=Tri.YES, why=trial(), adds=adds)
        except _Unavailable as result:
            available, why = result.available, str(result)
            grant = grant if result.right else ()
        except RequestError as error:
            available, why = Tri.NO, error.reason
            if "AUTHORIZATION" not in error.name:
                available, grant = Tri.CANNOT_TELL, ()
        except (ConnectError, SettingError) as error:
            # Other errors of a connection say that it cannot be read, whoever logs in.
            if isinstance(error, ConnectError) and error.kind not in ("authentication", "tls"):
                raise
            available, why, grant = Tri.NO, str(error), ()
        return DoctorRow(
            source=source,
            available=available,
            why=why.rstrip("."),
            adds=adds,
            grant=acl(self._raw.config, *grant) if grant else "",
        )

    def _log_in(self) -> str:
        try:
            self._raw.any(self._raw.deadline())
        except RequestError as error:
            raise ConnectError(str(error), "protocol") from None
        return "logged in"

    def _needs_group(self) -> str:
        if self._group is None:
            raise _Unavailable(Tri.CANNOT_TELL, _NO_GROUP, right=False)
        return self._group

    def _cluster_right(self, right: int, without: str, text: str = "") -> str:
        """Check that the user has the AclOperation `right` on the cluster.

        Returns `text`, which the row of the source shows.

        Raises:
            _Unavailable: the user lacks it (the error's text is `without`), or the broker reports
                no rights.
        """
        _check_right(
            self._raw.metadata([], self._raw.deadline(), operations=True).authorized_operations,
            right,
            without,
        )
        return text

    def _clock(self) -> str:
        raw = self._raw
        if not raw.any(raw.deadline()).supports(request_class("DescribeQuorum"), 1):
            raise _Unavailable(
                Tri.NO, "the broker has no DescribeQuorum v1 (Kafka 3.3)", right=False
            )
        self._cluster_right(_DESCRIBE, "no DESCRIBE on the cluster")
        ahead = ahead_of_brokers(raw, raw.deadline())
        return clock.note(ahead) if ahead else "this machine's clock is right"

    def _describe(self) -> str:
        try:
            self.described = describe(
                self._raw, self._needs_group(), self._raw.deadline(), operations=True
            )
        except RequestError as error:
            self._denied = error.name == "GROUP_AUTHORIZATION_FAILED"
            raise
        count = len(self.described.members)
        return f"{self.described.state.value}, {count} member{'' if count == 1 else 's'}"

    def _group_topics(self) -> list[str]:
        if self.described is None:
            raise _Unavailable(
                Tri.CANNOT_TELL,
                _NO_GROUP if self._group is None else "the group could not be described",
                right=self._denied,
            )
        return sorted(used_by(self.described)[1])

    def _topics(self) -> str:
        names = self._group_topics()
        found, failed = self._session.topics(names, self._raw.deadline())
        for name, error in failed.items():
            raise RequestError(error.name, f"{name}: {error.reason}")
        if self.described is not None:
            self.described = limited_to_topics(self.described, found)
        return f"{len(found)} of {len(names)} topics"

    def _offsets(self) -> str:
        committed = committed_offsets(self._raw, self._needs_group(), self._raw.deadline())
        owned, _ = used_by(self.described) if self.described else (set(), None)
        wanted = sorted(owned | committed.keys())
        ends = self._session.ends(wanted, self._raw.deadline())
        if len(ends) < len(wanted):
            raise _Unavailable(Tri.NO, f"end offsets of {len(ends)} of {len(wanted)} partitions")
        return f"{len(committed)} committed, {len(ends)} end offsets"

    def _settings(self) -> str:
        broker = self.described.coordinator_id if self.described else min(self._raw.brokers)
        settings = self._session.settings(broker, self._raw.deadline())
        return f"{len(settings)} settings of broker {broker}"

    def _probe(self) -> str:
        if not self._raw.any(self._raw.deadline()).supports(
            request_class("JoinGroup"), MIN_VERSION
        ):
            raise _Unavailable(
                Tri.NO, f"the broker has no JoinGroup v{MIN_VERSION} (Kafka 2.3)", right=False
            )
        self._group_topics()
        assert self.described is not None
        if self.described.type is not GroupType.CLASSIC:
            raise _Unavailable(
                Tri.NO,
                f"only classic groups have assignor lists: this is a {self.described.type} group",
                right=False,
            )
        _check_right(self.described.operations, _READ, "no READ on the group")
        return "allowed (not sent now)"

    def _offsets_topic(self) -> str:
        (answer,) = self._raw.metadata(
            [OFFSETS_TOPIC], self._raw.deadline(), operations=True
        ).topics
        rights = answer.authorized_operations
        # A user who may not describe it gets TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
        if error_name(answer.error_code) == "UNKNOWN_TOPIC_OR_PARTITION":
            raise _Unavailable(
                Tri.CANNOT_TELL,
                f"there is no {OFFSETS_TOPIC} yet: the first group that joins makes it",
                right=False,
            )
        # Brokers before 2.3 report no rights.
        if answer.error_code or (rights is not None and _READ not in rights):
            raise _Unavailable(Tri.NO, f"no READ and DESCRIBE on {OFFSETS_TOPIC}")
        if self._group is None:
            return "allowed"
        reading = rebalanced_since_load(self._raw, self._group)
        return f"{reading.rebalanced.value}: {reading.why}"


def acl(config: ClusterConfig, operation: str, *resource: str) -> Command:
    """Return the kafka-acls.sh command that allows this user `operation` on `resource`.

    `resource` are the command's options that name it, such as `--group GROUP`. An administrator
    runs the command on the same listener with another login (ADMIN.properties).
    """
    return Command(
        "kafka-acls.sh", "--bootstrap-server", config.bootstrap,
        *(() if config.protocol == "PLAINTEXT" else ("--command-config", "ADMIN.properties")),
        "--add", "--allow-principal", principal_of(config), "--operation", operation, *resource,
    )  # fmt: skip


def principal_of(config: ClusterConfig) -> str:
    """Return the Kafka principal of the connection's user, such as `User:alice`.

    If only a token or certificate names the user, the result holds a placeholder.
    """
    rows = (
        (config.oauth, "User:NAME-IN-YOUR-TOKEN"),
        (config.sasl, f"User:{config.username}"),
        (config.certificate, "User:NAME-OF-YOUR-CERTIFICATE"),
        (True, "User:ANONYMOUS"),
    )
    return next(name for holds, name in rows if holds)


def _check_right(rights: Set[int] | None, right: int, without: str) -> None:
    """Check that the AclOperation `right` is among the user's `rights`.

    Raises:
        _Unavailable: it is not (the error's text is `without`), or `rights` is None because the
            broker reports no rights.
    """
    if rights is None:
        raise _Unavailable(Tri.CANNOT_TELL, "the broker does not report rights (before 2.3)")
    if right not in rights:
        raise _Unavailable(Tri.NO, without)


def _counted(own: Mapping[str, str] | None) -> str:
    if own is None:
        raise _Unavailable(Tri.NO, "the right DescribeConfigs on the group is missing")
    return f"read: {len(own)} set for this group"
