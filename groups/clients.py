"""Client families, assignors and brokers, and what each version supports (groups/data/*.yaml).

All clients with the same consumer group code are one family: every librdkafka binding is
`librdkafka`. A vendor's build of Apache Kafka counts as the Apache release line it is built from.
"""

import re
from collections.abc import Collection
from functools import cache, lru_cache
from typing import Final, Literal

from rebal.groups.data import load_data
from rebal.groups.model import (
    Evidence,
    RebalanceProtocol,
    Record,
    Software,
    Source,
    Tri,
)

NEVER: Final = "never"
UNKNOWN: Final = "unknown"
EMBEDDED: Final = re.compile(r"rdkafka-v?(\d+(?:\.\d+)*)")
WITHOUT_STATIC: Final = ("kafkajs", "segmentio")
"""Families without static membership (KIP-345; tulios/kafkajs#884, segmentio/kafka-go#939)."""


class DefaultList(Record, frozen=True, kw_only=True):
    """The assignor list that versions from `since` on use when none is set."""

    since: str
    list: tuple[str, ...]


class DefaultTimeouts(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The timeouts in ms that versions from `since` on use when none are set."""

    since: str
    session: int
    rebalance: int
    source: str


class Family(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client family; the fields are explained at the top of groups/data/clients.yaml."""

    key: str
    title: str
    software_names: tuple[str, ...]
    mixed_list: Literal["allowed", "refused", "never", "unknown"]
    protocol: Literal["fixed", "follows-vote"]
    cooperative_since: str
    kip848_since: str
    assignors: tuple[str, ...]
    other_assignors: Literal["never", "application", "any", "unknown"]
    defaults: tuple[DefaultList, ...]
    client_id: str | None
    timeouts: tuple[DefaultTimeouts, ...]
    leaves_on_close: bool
    sources: dict[str, str]

    @property
    def follows_vote(self) -> bool:
        """True if the elected assignor alone decides the rebalance protocol that a member runs.

        If False, the member's whole list decides it.
        """
        return self.protocol == "follows-vote"

    @property
    def mixed(self) -> Tri:
        """Return whether one assignor list of this client may mix eager and cooperative assignors.

        `cannot tell` if that is not known for the family.
        """
        return {"allowed": Tri.YES, "unknown": Tri.CANNOT_TELL}.get(self.mixed_list, Tri.NO)

    def cooperative(self, version: str | None = None) -> Tri:
        """Return whether `version` has a cooperative assignor.

        `cannot tell` if `version` is not known and it matters, or if it is not known which version
        was the first to have one.
        """
        return _since(self.cooperative_since, version)

    def starts_with(self, assignor: str) -> Tri:
        """Return whether a client of this family can start with `assignor` in its assignor list.

        Yes if the library's newest version contains the assignor, or if the list may contain any
        assignor. No if the list may contain only the library's own. `cannot tell` if the
        application would have to supply its class, or if nothing is known of other assignors.
        """
        if assignor in self.assignors or self.other_assignors == "any":
            return Tri.YES
        return Tri.NO if self.other_assignors == "never" else Tri.CANNOT_TELL

    def kip848(self, version: str | None = None) -> Tri:
        """Return whether `version` can use `group.protocol=consumer`.

        `cannot tell` if `version` is not known and it matters, or if it is not known which version
        was the first to have this.
        """
        return _since(self.kip848_since, version)


class ClientAssignor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One assignor: its name on the wire, its rebalance protocols, and its names in configuration.

    `spellings` are the class names and names in code by which configurations call it.
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] | Literal["depends"]
    spellings: tuple[str, ...]
    source: str


class Vendor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendor's numbers for its builds of Apache Kafka, and the Kafka versions they stand for.

    The comment at the top of groups/data/vendors.yaml explains the fields.
    """

    vendor: str
    pattern: str
    lines: dict[str, str] | None = None
    source: str


@cache
def families() -> dict[str, Family]:
    """Return all client families by key."""
    known = load_data("clients.yaml", dict[str, tuple[Family, ...]])["families"]
    return {family.key: family for family in known}


@cache
def consumer_libraries() -> tuple[str, ...]:
    """Return the keys of all client families except Kafka Streams and Connect."""
    return tuple(key for key in families() if key not in ("streams", "connect"))


@cache
def assignors() -> dict[str, ClientAssignor]:
    """Return all known assignors by their name on the wire."""
    found = load_data("assignors.yaml", dict[str, tuple[ClientAssignor, ...]])["assignors"]
    return {known.name: known for known in found}


_UNKNOWN: Final = Family(
    key="",
    title="an unknown client",
    software_names=(),
    mixed_list="unknown",
    protocol="fixed",
    cooperative_since=UNKNOWN,
    kip848_since=UNKNOWN,
    assignors=(),
    other_assignors="unknown",
    defaults=(),
    client_id=None,
    timeouts=(),
    leaves_on_close=True,
    sources={},
)


def family(key: str | None) -> Family:
    """Return the client family with this key.

    Without such a family, return a placeholder with an empty key and no known facts.
    """
    return families().get(key or "", _UNKNOWN)


def family_of(software_name: str | None, version: str | None = None) -> str | None:
    """Return the key of the client family that sends `software_name` in its handshake (KIP-511).

    None for an unknown name. A `version` that names rdkafka (`2.16.1-rdkafka-2.16.0`) makes any
    name a librdkafka binding.
    """
    if not software_name:
        return None
    if version and EMBEDDED.search(version):
        return "librdkafka"
    return next(
        (
            known.key
            for known in families().values()
            for name in known.software_names
            if software_name == name or (name[-1] == "*" and software_name.startswith(name[:-1]))
        ),
        None,
    )


def software_of(name: str | None, version: str | None, evidence: Evidence) -> Software | None:
    """Return the client software with this name and version; None without a name."""
    if not name:
        return None
    return Software(
        family=family_of(name, version), name=name, version=version, evidence=(evidence,)
    )


def is_named(software: Software | None) -> bool:
    """Return whether the client's family is stated, not guessed.

    It is stated by the client (in its handshake, in a log or in a record of `__consumer_offsets`)
    or by the user.
    """
    if software is None or software.family is None:
        return False
    named = (Source.REQUEST_LOG, Source.CLIENT_LOG, Source.OFFSETS_TOPIC, Source.ASSUMED)
    by_itself = bool(software.name and software.version)
    return by_itself or any(item.source in named for item in software.evidence)


def proven_family(software: Software | None) -> str | None:
    """Return the client's family if it is stated or proven by subscription bytes, else None.

    A client id or an assignor's name alone only suggests a family.
    """
    if software is None:
        return None
    by_bytes = any(item.source is Source.CLIENT_BYTES for item in software.evidence)
    return software.family if by_bytes or is_named(software) else None


def is_default_client_id(group_id: str, client_id: str) -> bool:
    """Return whether `client_id` is the default of a Java consumer: `consumer-<group.id>-<number>`.

    Processes with this default share their client ids, so it does not identify a process. Source:
    ConsumerConfig.maybeOverrideClientId.
    """
    before, dash, number = client_id.rpartition("-")
    return before + dash == f"consumer-{group_id}-" and number.isdigit()


def fixes_protocol(software: Software | None) -> bool:
    """Return whether the client certainly fixes its rebalance protocol when it is built.

    If the subscription bytes leave several client families possible, it is True only if clients of
    each of these families do so. `software.version_range` names them in this case.
    """
    key = proven_family(software)
    text = "" if software is None or software.family else software.version_range or ""
    # A snapshot's file may name any family.
    left = (key,) if key else named_families(text)
    known = [one for one in map(families().get, left) if one is not None]
    return len(known) == text.count(" or ") + 1 and all(
        one.mixed is not Tri.CANNOT_TELL and not one.follows_vote for one in known
    )


def default_list(key: str | None, version: str | None = None) -> tuple[str, ...] | None:
    """Return the assignor list that a client of family `key` uses when none is configured.

    None when the family is not known, has no default, or has several defaults by version and
    `version` is not given.
    """
    known = family(key)
    if not known.defaults:
        return None
    if len(known.defaults) == 1:
        return known.defaults[0].list
    if (have := version_tuple(version)) is None:
        return None
    return next((d.list for d in known.defaults if have >= (version_tuple(d.since) or ())), None)


def worker_list(connect_protocol: str) -> tuple[str, ...] | None:
    """Return the protocols that a Connect worker with this `connect.protocol` offers.

    None if the value is invalid.
    """
    offers = {
        "sessioned": ("sessioned", "compatible", "default"),
        "compatible": ("compatible", "default"),
        "eager": ("default",),
    }
    return offers.get(connect_protocol.strip().lower())


def assignor_of(class_or_name: str) -> str | None:
    """Return the wire name of an assignor that is given by wire name, class name or name in code.

    None for an unknown name: the class name of a custom assignor does not show its wire name.
    """
    text = class_or_name.strip().strip("'\"").removeprefix("class ").strip().removesuffix("()")
    return _spellings().get(text) or _spellings().get(text.lower())


@lru_cache(4096)
def protocols_of(assignor: str, key: str | None = None) -> frozenset[RebalanceProtocol] | None:
    """Return the rebalance protocols that an assignor supports in clients of family `key`.

    None for an unknown assignor, or one whose name does not show its protocols. Java's
    cooperative-sticky supports both, which is why [cooperative-sticky, range] runs EAGER. In
    clients that reject such a mixed list, cooperative-sticky supports COOPERATIVE alone.
    """
    known = assignors().get(assignor)
    if known is None or known.protocols == "depends":
        return None
    cooperative = RebalanceProtocol.COOPERATIVE
    if family(key).mixed_list == "refused" and cooperative in known.protocols:
        return frozenset({cooperative})
    return frozenset(known.protocols)


def eager_only(assignor: str) -> Tri:
    """Return whether the assignor supports EAGER alone; `cannot tell` for an unknown one."""
    if (supported := protocols_of(assignor)) is None:
        return Tri.CANNOT_TELL
    return Tri.NO if RebalanceProtocol.COOPERATIVE in supported else Tri.YES


def named_families(text: str | None) -> tuple[str, ...]:
    """Return the client families named in a version range such as `java >= 3.4 or franz-go`."""
    return tuple(word for word in (text or "").replace(",", " ").split() if word in families())


def apache_version(version: str) -> str:
    """Return the Apache Kafka release or minor version (`3.5`) that a vendor's build is made from.

    A version without a known vendor's spelling is returned unchanged. The text is empty for a known
    vendor's version whose Apache Kafka version is not known.
    """
    if re.fullmatch(r"[\d.]*", version):
        # The vendors are not read for what none of them writes.
        return version
    for known in load_data("vendors.yaml", dict[str, tuple[Vendor, ...]])["vendors"]:
        if match := re.fullmatch(known.pattern, version):
            built = match["built"]
            return built if known.lines is None else known.lines.get(built, "")
    return version


@lru_cache(4096)
def version_tuple(version: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a version as a tuple to compare; None if it has no numbers.

    For a librdkafka binding, the version of librdkafka counts: `2.16.1-rdkafka-2.16.0` is (2, 16).
    For a vendor's build, the minor version of Apache Kafka counts: `7.5.1-ccs` is (3, 5). Trailing
    zeros are dropped, so 3.0 equals 3.0.0.
    """
    if not version:
        return None
    embedded = EMBEDDED.search(version)
    text = embedded[1] if embedded else apache_version(version)
    if (match := re.search(r"\d+(?:\.\d+)*", text)) is None:
        return None
    numbers = [int(number) for number in match[0].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def older(software: Software, limit: str) -> Tri:
    """Return whether `software` is older than `limit`, by its version or its version range.

    `cannot tell` if it has neither, or if the range includes older and newer versions.
    """
    edge = version_tuple(limit) or ()
    if (have := version_tuple(software.version)) is not None:
        return Tri.YES if have < edge else Tri.NO
    text = software.version_range or ""
    low, high = (re.search(sign + r" *(\d+(?:\.\d+)*)", text) for sign in (">=", "<(?!=)"))
    if low and (version_tuple(low[1]) or ()) >= edge:
        return Tri.NO
    if high and (version_tuple(high[1]) or ()) <= edge:
        return Tri.YES
    return Tri.CANNOT_TELL


def _since(since: str, version: str | None) -> Tri:
    # Every version has what the first one has.
    first, have = version_tuple(since), (0,) if since == "0" else version_tuple(version)
    if since == NEVER:
        return Tri.NO
    if first is None or have is None:
        return Tri.CANNOT_TELL
    return Tri.YES if have >= first else Tri.NO


@cache
def _spellings() -> dict[str, str]:
    return {each: one.name for one in assignors().values() for each in (one.name, *one.spellings)}


class Library(Record, frozen=True, kw_only=True):
    """Client library that a service uses, as its build, lock or image file shows.

    `family` is None if the library is not known, for example because no file names it. `product` is
    the product that contains the library, such as Logstash (empty: none does). `default_list` is
    the default assignor list (None: not known for this version). `group_protocol` is False for a
    product that joins no consumer group. `list_key` is the configuration key of the assignor list,
    `refuses` a sentence on the lists that the configuration does not accept. `own_list` is True if
    the product sets its own default list in some version; where `default_list` is None, the
    family's default then does not apply. `ecosystem` is the type in a package URL, such as `maven`
    or `docker`. `faults` are the known faults of this version, as (protocol, effect) pairs. `where`
    is the file that names the package, and `line` the line number in it (0: not known).
    """

    family: str | None = None
    version: str | None = None
    product: str = ""
    product_version: str | None = None
    default_list: tuple[str, ...] | None = None
    group_protocol: bool = True
    list_key: str | None = None
    refuses: str | None = None
    own_list: bool = True
    ecosystem: str = ""
    package: str = ""
    faults: tuple[tuple[str, str], ...] = ()
    where: str = ""
    line: int = 0

    @property
    def title(self) -> str:
        """Return family and version: `java 3.9.0`, or `java` if the version is not known."""
        return f"{self.family or 'not known'} {self.version or ''}".rstrip()

    @property
    def product_title(self) -> str:
        """Return product and version, such as `Logstash 8.10.0`; empty without a product."""
        return f"{self.product} {self.product_version or ''}".rstrip() if self.product else ""


class BrokerDifference(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way in which `OtherBrokers` differ from Apache Kafka for consumer groups.

    `what` describes it. It applies to groups of this `protocol` and to clients of this `family`
    (each None: all). If `static` is True, it applies to static members only.
    """

    what: str
    source: str
    protocol: str | None = None
    family: str | None = None
    static: bool = False


class OtherBrokers(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of brokers that speak Kafka's protocol but are not Apache Kafka, such as Redpanda.

    The comment at the top of groups/data/brokers.yaml explains the fields.
    """

    name: str
    hosts: str
    cluster_ids: str | None
    kip848: bool | None
    differs: tuple[BrokerDifference, ...]

    def under(
        self, protocol: str | None, families: Collection[str | None], *, static: bool
    ) -> list[str]:
        """Return the differences from Apache Kafka that apply to a group, each with its source.

        `protocol` is `classic` or `consumer` (None: not known), `families` are the client families
        of the members, and `static` is True if the group has static members.
        """
        return [
            f"{one.what} ({one.source})"
            for one in self.differs
            if one.protocol in (None, protocol)
            and one.family in (None, *families)
            and (static or not one.static)
        ]


def other_brokers(servers: str | None, cluster_id: str | None = None) -> OtherBrokers | None:
    """Return the kind of non-Apache brokers that a bootstrap server or the cluster id shows.

    None if neither shows one. `servers` is a comma-separated list of `host:port`.
    """
    hosts = [server.strip().rpartition(":")[0].lower() for server in (servers or "").split(",")]
    for kind in load_data("brokers.yaml", dict[str, tuple[OtherBrokers, ...]])["brokers"]:
        named = any(re.fullmatch(kind.hosts, host) for host in hosts)
        if named or (kind.cluster_ids and re.fullmatch(kind.cluster_ids, cluster_id or "")):
            return kind
    return None
