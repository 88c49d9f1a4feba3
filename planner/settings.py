"""Exact configuration text of a step, for each client family and format."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rebal.groups.clients import assignors
from rebal.groups.clients import family as known_family
from rebal.groups.model import Record, Tri
from rebal.planner.plan import Setting

KEY: Final = "partition.assignment.strategy"
CLASSIC_ONLY: Final = (KEY, "session.timeout.ms", "heartbeat.interval.ms")
"""Settings with which a client with group.protocol=consumer does not start (KIP-848)."""
WITHOUT: Final = " and without "
"""Words between the settings to set and the settings to remove."""
_REMOTE_RANGE: Final = "group.remote.assignor=range"

_SPRING_CODE: Final = (
    "code wins over this: a ConsumerFactory with a map of its own, @KafkaListener(properties = …)"
)
_SPRING_VARIABLE: Final = "SPRING_KAFKA_CONSUMER_PROPERTIES"
_AIOKAFKA_JOINS: Final = (
    "aiokafka joins once for each of these, first with the first alone (seen with 0.14.0): a "
    "rejection in the broker's log, while others lack it, and one more rebalance are normal"
)


class _Form(Record, frozen=True, kw_only=True):
    """One text format of settings, such as Java properties or Spring YAML.

    The text is a comment line (`mark`, the comment, `more`), the lines `opens`, one `line` for each
    setting, and the lines `closes`. `line` is a template with the fields `key`, `value` and
    `variable`, which is the key as Spring Boot names it in the environment.
    """

    name: str
    line: str = "{key}={value}"
    mark: str = "#"
    more: str = ""
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()


_OBJECT: Final = '    "{key}": "{value}",'
_FORMS: Final = {
    "connector": (_Form(name="connector configuration", line="consumer.override.{key}={value}"),),
    "java": (
        _Form(name="Java properties"),
        _Form(
            name="Spring YAML",
            line='        {key}: "{value}"',
            opens=(
                f"# {_SPRING_CODE}",
                "spring:",
                "  kafka:",
                "    consumer:",
                "      properties:",
            ),
        ),
        _Form(
            name="Spring environment",
            line=f"{_SPRING_VARIABLE}_{{variable}}={{value}}",
            opens=(f"# {_SPRING_CODE}",),
        ),
        _Form(
            name="Kubernetes ConfigMap",
            line=f'  {_SPRING_VARIABLE}_{{variable}}: "{{value}}"',
            more="; for envFrom of a Spring container",
            opens=(f"# {_SPRING_CODE}", "data:"),
        ),
        _Form(
            name="Quarkus properties",
            line="kafka.{key}={value}",
            opens=(
                "# for all channels; for one, put mp.messaging.incoming.CHANNEL before the key "
                "instead of kafka",
            ),
        ),
        _Form(name="Java code", line='props.put("{key}", "{value}");', mark="//"),
    ),
    "librdkafka": (
        _Form(name="librdkafka properties"),
        _Form(name="Python", line=_OBJECT, opens=("config |= {",), closes=("}",)),
        _Form(
            name="JS", line=_OBJECT, mark="//", opens=("Object.assign(config, {",), closes=("});",)
        ),
        _Form(name="confluent-kafka-go", line='config.SetKey("{key}", "{value}")', mark="//"),
    ),
}
_SLASHES: Final = {"franz-go", "sarama", "segmentio", "confluent-kafka-go", "JS", "Java code"}


class _Code(Record, frozen=True, kw_only=True):
    """The code that passes an assignor list to one client library.

    `call` is the line of code that sets the list; the list replaces its `{}`. `form` is the name of
    the code's format, such as `Python`. `spelled` is assignor name → its name in the code, for the
    assignors that the library has. `imports` is a template of one assignor's import line, whose two
    `{}` are the assignor's module and its name in the code (empty: no import is needed).
    """

    form: str
    call: str
    spelled: Mapping[str, str]
    imports: str = ""

    def text(self, names: Sequence[str]) -> str:
        """Return the code that gives the library this list."""
        spelled = [self.spelled[name] for name in names]
        needed = (self.imports.format(_MODULES[name], self.spelled[name]) for name in names)
        return "\n".join([*filter(None, needed), self.call.format(", ".join(spelled))])


# Modules of kafka-python's assignors, which aiokafka has too.
_MODULES: Final = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky.sticky_assignor",
    "cooperative-sticky": "cooperative_sticky",
}
_CODE: Final = {
    "franz-go": _Code(
        form="franz-go",
        call="kgo.Balancers({})",
        spelled={
            "range": "kgo.RangeBalancer()",
            "roundrobin": "kgo.RoundRobinBalancer()",
            "sticky": "kgo.StickyBalancer()",
            "cooperative-sticky": "kgo.CooperativeStickyBalancer()",
        },
    ),
    "sarama": _Code(
        form="sarama",
        call="config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{{{}}}",
        spelled={
            "range": "sarama.NewBalanceStrategyRange()",
            "roundrobin": "sarama.NewBalanceStrategyRoundRobin()",
            "sticky": "sarama.NewBalanceStrategySticky()",
            "cooperative-sticky": "sarama.NewBalanceStrategyCooperativeSticky()",
        },
    ),
    "segmentio": _Code(
        form="segmentio",
        call="config.GroupBalancers = []kafka.GroupBalancer{{{}}}",
        spelled={
            "range": "kafka.RangeGroupBalancer{}",
            "roundrobin": "kafka.RoundRobinGroupBalancer{}",
        },
    ),
    "kafka-python": _Code(
        form="Python",
        call="KafkaConsumer(…, partition_assignment_strategy=[{}])",
        spelled={
            "range": "RangePartitionAssignor",
            "roundrobin": "RoundRobinPartitionAssignor",
            "sticky": "StickyPartitionAssignor",
            "cooperative-sticky": "CooperativeStickyAssignor",
        },
        imports="from kafka.coordinator.assignors.{} import {}",
    ),
    "aiokafka": _Code(
        form="Python",
        call="AIOKafkaConsumer(…, partition_assignment_strategy=[{}])",
        spelled={
            "range": "RangePartitionAssignor",
            "roundrobin": "RoundRobinPartitionAssignor",
            "sticky": "StickyPartitionAssignor",
        },
        imports="from aiokafka.coordinator.assignors.{} import {}",
    ),
}


def settings_for(
    family: str,
    names: Sequence[str],
    group_id: str,
    members: Sequence[str] = (),
    *,
    connector: bool = False,
    classes: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Setting, ...]:
    """Return the configuration that makes clients of `family` use this assignor list.

    `names` are the assignors in order of preference. A comment names the group, and `members` if
    only some of the group are meant. `connector`: the members are tasks of a sink connector, so the
    setting goes into the connector's configuration. `classes` is custom assignor → Java class.
    Empty for a family whose configuration rebal does not know, or which lacks one of them.
    """
    own = {plain(name): plain(each) for name, each in classes.items()}
    names = [plain(name) for name in names]
    head = _head(group_id, members)
    if family in _FORMS and Tri.NO not in map(known_family(family).starts_with, names):
        java = (own.get(name) or _class(name) for name in names)
        written = ",".join(java if family == "java" else names)
        return _texts(family, {KEY: written}, head, connector=connector)
    if family == "kafkajs":
        return (_setting(family, "JS", "\n".join([f"// {head}", *_kafkajs(names)])),)
    notes = [_AIOKAFKA_JOINS] if family == "aiokafka" and len(names) > 1 else []
    return _in_code(family, names, [*notes, head])


def _in_code(family: str, names: Sequence[str], notes: Sequence[str]) -> tuple[Setting, ...]:
    """Return the code for a library whose assignor list is set in code.

    Empty for another library, or if it lacks one of the assignors.
    """
    code = _CODE.get(family)
    if code is None or not code.spelled.keys() >= {*names}:
        return ()
    return (noted(_setting(family, code.form, code.text(names)), notes),)


def consumer_protocol_for(
    family: str,
    group_id: str,
    members: Sequence[str] = (),
    *,
    remote_assignor: str | None = None,
    connector: bool = False,
) -> tuple[Setting, ...]:
    """Return the configuration that makes clients of `family` use KIP-848.

    A comment names the settings to remove. `remote_assignor` is the broker's assignor to ask for
    (None: the broker's default). Empty for a family whose configuration rebal does not know.
    """
    head = (
        f"{_head(group_id, members)}; remove {', '.join(CLASSIC_ONLY)} (the group's own "
        "configuration has consumer.session.timeout.ms and consumer.heartbeat.interval.ms)"
    )
    wanted = {"group.protocol": "consumer"}
    if remote_assignor is not None:
        wanted["group.remote.assignor"] = remote_assignor
    if family in _FORMS:
        return _texts(family, wanted, head, connector=connector)
    if family == "franz-go":
        # It asks for the broker's uniform by its sticky balancer; with a cooperative one first it
        # stays on the classic protocol and does not say so.
        balancer = _CODE[family].text(["range" if remote_assignor == "range" else "sticky"])
        code = _setting(family, family, f"kgo.ServerSideBalancer(), {balancer}")
        advice = (
            "franz-go advises brokers of 4.3 or later: before, a commit can be answered with "
            "STALE_MEMBER_EPOCH, which it does not handle"
        )
        return (noted(code, [advice, _head(group_id, members)]),)
    return ()


def classic_protocol_for(family: str, names: Sequence[str], group_id: str) -> tuple[Setting, ...]:
    """Return the configuration that moves clients of `family` back to the classic protocol.

    It sets the assignor list `names`. Empty for a family whose configuration rebal does not know.
    """
    names = [plain(name) for name in names]
    if family in _FORMS and Tri.NO not in map(known_family(family).starts_with, names):
        written = ",".join(map(_class, names) if family == "java" else names)
        head = f"{_head(group_id, ())}; remove group.remote.assignor"
        return _texts(family, {"group.protocol": "classic", KEY: written}, head)
    if family == "franz-go":
        return _in_code(family, names, [f"{_head(group_id, ())}; remove kgo.ServerSideBalancer()"])
    return ()


def consumer_change(family: str | None, config: Sequence[Setting] = ()) -> str:
    """Return in a few words what to change for a client of `family` (None: any) to use KIP-848.

    `config` is the step's configuration, which may ask for the broker's range assignor.
    """
    wanted = "group.protocol=consumer"
    if family == "franz-go":
        return f"{wanted} (kgo.ServerSideBalancer())"
    remote = f", {_REMOTE_RANGE}" if asks_for_range(config) else ""
    return f"{wanted}{remote}{WITHOUT}{', '.join(CLASSIC_ONLY)}"


def asks_for_range(config: Sequence[Setting]) -> bool:
    """Return whether this KIP-848 configuration of clients asks the brokers to assign by range."""
    return any(
        text in setting.text
        for setting in config
        for text in (_REMOTE_RANGE, "kgo.RangeBalancer()")
    )


def program_settings(family: str, wanted: Mapping[str, str], head: str) -> tuple[Setting, ...]:
    """Return the settings of a Streams application or Connect worker, as Java properties.

    `wanted` is key → value, and `head` is the comment before them.
    """
    lines = "\n".join(f"{key}={value}" for key, value in wanted.items())
    return (_setting(family, "Java properties", f"# {plain(head)}\n{lines}".rstrip()),)


def no_text(family: str, names: Sequence[str], members: Sequence[str]) -> tuple[Setting, ...]:
    """Return a comment in place of configuration text, for a family that rebal cannot configure."""
    text = (
        f"# {plain(', '.join(members))}: how {family} is given [{plain(', '.join(names))}], and "
        "whether it can be, is not known here"
    )
    return (_setting(family, "by hand", text),)


def noted(setting: Setting, notes: Sequence[str]) -> Setting:
    """Return `setting` with `notes` before its text, as comments in the format of the setting."""
    mark = "//" if setting.format in _SLASHES else "#"
    return _setting(
        setting.family, setting.format, "".join(f"{mark} {note}\n" for note in notes) + setting.text
    )


def plain(text: str) -> str:
    """Return `text` with unprintable characters escaped, so that it stays on a comment's line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _head(group_id: str, members: Sequence[str]) -> str:
    return f"group {plain(group_id)}" + (f": {plain(', '.join(members))}" if members else "")


def _texts(
    family: str, wanted: Mapping[str, str], head: str, *, connector: bool = False
) -> tuple[Setting, ...]:
    return tuple(
        _setting(
            family,
            form.name,
            "\n".join(
                [
                    f"{form.mark} {head}{form.more}",
                    *form.opens,
                    *(
                        form.line.format(
                            key=key, value=value, variable=key.upper().replace(".", "_")
                        )
                        for key, value in wanted.items()
                    ),
                    *form.closes,
                ]
            ),
        )
        for form in _FORMS["connector" if connector and family == "java" else family]
    )


def java_class(name: str, package: str = "org.apache.kafka.") -> str | None:
    """Return the Java name in `package` of Kafka's assignor `name`: by default its class.

    If `package` is the name of an enumeration, it is the enumeration's constant for the assignor.
    None if Kafka has no such assignor, or `package` has no name for it.
    """
    known = assignors().get(name)
    return next((e for e in (known.spellings if known else ()) if e.startswith(package)), None)


def _class(name: str) -> str:
    """Return the assignor's Java class, or a placeholder if Kafka has no assignor of that name."""
    return java_class(name) or f"THE-CLASS-OF-{name}"


def _kafkajs(names: Sequence[str]) -> Iterator[str]:
    """Yield the lines of kafkajs code that pass this assignor list.

    A comment marks each assignor that kafkajs lacks: the application must write it.
    """
    listed = []
    for name in names:
        # The one that it brings.
        if name == "RoundRobinAssigner":
            listed.append("PartitionAssigners.roundRobin")
            continue
        listed.append(f"assigners[{json.dumps(name)}]")
        yield (
            f"// kafkajs has no {name}: {listed[-1]} stands for an assigner of your own whose name "
            f"is {name}, and which assigns as the other members' {name} does"
        )
    yield 'const { PartitionAssigners } = require("kafkajs");'
    yield f"kafka.consumer({{ …, partitionAssigners: [{', '.join(listed)}] }});"


def _setting(family: str, form: str, text: str) -> Setting:
    return Setting(family=family, format=form, text=text)
