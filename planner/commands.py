"""The commands that plans and findings print; `Given` makes each of them from what the user typed.

A printed command runs as it is. It repeats the options of the command line that printed it: the
connection, the evidence and the other planning options. A command of a saved plan repeats only the
options that the plan's file does not contain. Secrets are left out; the command reads them from
environment variables.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Self

from msgspec.structs import replace

from rebal.groups.clients import consumer_libraries
from rebal.groups.commands import Command, Variable, option, quoted, rebal
from rebal.groups.model import GroupSnapshot, GroupType, Record

COOPERATIVE: Final = "cooperative"
"""Goal of a plan without `--to`."""
EAGER: Final = "eager"
READ_MORE: Final = "read more"
"""`NamedCommand.use` of a command that prints a rule's documentation."""
ACCEPT: Final = "accept "
"""Start of `NamedCommand.use` in a command that records the user's answer to a rule."""
# Option that states which client library a member runs, and the start of `NamedCommand.use` in a
# command that is to run only if a condition is true.
ANSWER: Final = "--assume-family"
IF: Final = "if "
AGREED: Final = "the interruption is agreed"
"""Reason in a printed command that accepts a stop of the whole group."""
_LOGIN: Final = {
    "-U": Variable("REBAL_X_SASL_USERNAME"),
    "-P": Variable("REBAL_X_SASL_PASSWORD"),
}
JOURNAL: Final = ".journal.jsonl"
"""Suffix of a journal's file name, after the name of the plan's file."""
OFFLINE: Final = "REBAL_BOOTSTRAP"
"""Environment variable for the brokers in printed commands, if no option names them."""


class NamedCommand(Record, frozen=True, omit_defaults=False):
    """One command beside a text: `use` says in a few words what it is for, `line` is to paste."""

    use: str
    line: str

    @property
    def states_client(self) -> bool:
        """Return whether this command proposes a member's client library, with --assume-family.

        It is to run only if that is the member's library. The answer is False for a command that
        merely repeats an --assume-family which the user has typed.
        """
        return self.use.startswith(IF) and ANSWER in self.line

    def renamed(self, old: str | None, new: str) -> Self:
        """Return the command with the file name `old` replaced by `new`."""
        if old is None or old == new:
            return self
        word = re.compile(f"(?<= ){re.escape(quoted(old))}(?= |$)")
        return replace(self, line=word.sub(lambda _: quoted(new), self.line))


class Given(Record, frozen=True, kw_only=True):
    """The options of one command line, as words that the printed commands repeat.

    `connection`: options that reach the cluster, without secrets. `evidence`: options that add
    evidence. `wishes`: the other options of plan-upgrade. `looks`: options of verify that the
    plan's file does not contain, such as --assume, and those typed again in place of the plan's.

    `snapshot`: the saved group's file. `plan`: the plan's file. `left`: the file of the plan that
    is being abandoned, for a plan that leads back.

    `brokers` (the bootstrap servers) and `properties` (the client.properties file) are for Kafka's
    own tools. `client`: the words by which kafka-python's command line reaches the brokers, without
    the login (None: it cannot reach them).

    `variables`: environment variables to set before a printed command runs; they hold the secrets,
    and the brokers where no option names them. `environment`: the variables that named the
    connection. `folder`: the working folder relative to the plan's file; the paths above are
    relative to it.
    """

    connection: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    wishes: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    snapshot: str | None = None
    plan: str | None = None
    left: str | None = None
    brokers: str | None = None
    client: tuple[str, ...] | None = ()
    properties: str | None = None
    variables: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    folder: str = ""

    @property
    def offline(self) -> bool:
        """Return whether the group was read from a file, and nothing names a broker."""
        return self.snapshot is not None and OFFLINE in self.variables

    @property
    def note(self) -> str:
        """Return what the user must add to run the printed commands: secrets, or a log on stdin.

        It is a text of one or two sentences, empty if nothing is to be added.
        """
        secrets = " and ".join(name for name in self.variables if name != OFFLINE)
        rows = (
            (
                secrets,
                f"printed commands leave out what may be secret: set {secrets} to run them.",
            ),
            (
                "-" in self.evidence,
                "a printed command with `-` reads stdin: pipe the log into it again.",
            ),
        )
        return " ".join(text for holds, text in rows if holds)

    def for_gate(self, seen: GroupSnapshot, *, by_lists: bool) -> Self:
        """Return the same options for a command that checks a gate of the group `seen`.

        That command reads the live group instead of a saved file, and has the options of `proving`,
        which explains `by_lists`. If the group is in a saved file and no broker is named, the
        options are returned unchanged.
        """
        if self.offline:
            return self
        return replace(self, snapshot=None, evidence=self.proving(seen, by_lists=by_lists))

    def proving(self, seen: GroupSnapshot, *, by_lists: bool) -> tuple[str, ...]:
        """Return the options that add the evidence for a gate of the group `seen`.

        They are the user's evidence options. If there are none, the option is --probe for a classic
        group whose gate needs assignor lists (`by_lists`); for any other group there is none.
        """
        asks = by_lists and seen.group.type is GroupType.CLASSIC
        return self.evidence or (("--probe",) if asks else ())

    def inspect(self, group: str | None, *more: str) -> Command:
        """Return the `rebal inspect` command for the group, with the same evidence.

        `more` are further options; one that is among the evidence already is not repeated. Without
        a group it shows all groups. With --probe or --save it reads the live group instead of a
        saved file.
        """
        if self.snapshot is not None and {"--probe", "--save"}.intersection(more):
            return replace(self, snapshot=None).inspect(group, *more)
        every = () if group is not None else ("--all",)
        return self._of_group("inspect", group, self._with((*more, *every)))

    def look(self, group: str) -> Command:
        """Return the command that shows the group's state; it adds no evidence."""
        return replace(self, evidence=()).inspect(group)

    def plan_upgrade(
        self, group: str, to: str = COOPERATIVE, *more: str, expected: int | None = None
    ) -> Command:
        """Return the `rebal plan-upgrade` command for the group, with the same options.

        They include the evidence options. `to` is the goal or a client library, `more` are further
        options. `expected` is the number of members of the whole service.
        """
        named = "--to-client" if to in consumer_libraries() else "--to"
        goal = () if to == COOPERATIVE else option(named, to)
        count = ("--expect-members", str(expected)) if expected else ()
        return self._of_group(
            "plan-upgrade", group, (*goal, *self._with(()), *count, *self.wishes, *more)
        )

    def simulate(self, group: str, *more: str) -> Command:
        """Return the command that simulates an assignor on the group, with the same evidence."""
        return self._of_group("simulate", group, (*more, *self._where(), *self._not_probed()))

    def rehearse(self, group: str | None, *more: str) -> Command:
        """Return the `rebal rehearse` command, with the same evidence.

        It rehearses the plan's file if there is one, else a script that `more` names. With `group`
        None it names neither group nor cluster, because the plan has the group.
        """
        where = self._where() if group else ()
        named = option("--group", group) if group and not self.snapshot else ()
        return rebal(
            "rehearse",
            (self.plan,) if self.plan else (),
            (*named, *more, *where, *self._not_probed()),
        )

    def verify(self, *more: str) -> Command:
        """Return the `rebal verify` command for the plan's file, which says how to read the group.

        It leaves out --journal for a plan that leads back, because such a plan has a journal of its
        own.
        """
        looks = self.looks if self.left is None else _without(self.looks, "--journal")
        return rebal("verify", (self.plan or "PLAN",), (*more, *looks))

    def abort(self, left: str, *more: str) -> Command:
        """Return the command that plans the way back from the plan in the file `left`."""
        return rebal("verify", (left,), ("--abort", *more, *self.looks))

    def confirm(self, *more: str) -> Command:
        """Return the `rebal verify` command with the options `more` that confirm a step by hand.

        It leaves out --ignore. If the group is read from a saved file and the user named no
        journal, it names the plan's journal, because looks at a saved group are not recorded
        otherwise.
        """
        kept = _without(self.looks, "--ignore", "--reason")
        if self.offline and self.plan is not None and kept == _without(kept, "--journal"):
            kept = (*kept, *option("--journal", f"{self.plan}{JOURNAL}"))
        return replace(self, looks=kept).verify(*more)

    def request_log(self, broker: int | None) -> Iterator[NamedCommand]:
        """Yield the commands that switch a broker's request log on, and off again (KIP-412).

        Yield nothing if the broker is not known (None).
        """
        if broker is None:
            return
        logger = ("--alter", "--entity-type", "broker-loggers", "--entity-name")
        for use, change in (
            ("request log on", ("--add-config", "kafka.request.logger=DEBUG")),
            ("request log off", ("--delete-config", "kafka.request.logger")),
        ):
            yield NamedCommand(use, self.kafka("kafka-configs.sh", *logger, str(broker), *change))

    def kafka(self, tool: str, *words: str) -> Command:
        """Return a command of one of Kafka's own tools on this cluster."""
        config = option("--command-config", self.properties) if self.properties else ()
        return Command(
            tool, *option("--bootstrap-server", self.brokers or "HOST:PORT"), *config, *words
        )

    def remove_static(self, group: str, instances: Iterable[str]) -> Iterator[NamedCommand]:
        """Yield for each static member a command that removes it from a classic group.

        A process that still runs is fenced by the removal, so the command is only for a process
        that is gone for good. It is kafka-python's command (`python -m kafka.admin`), which is
        installed with rebal; its login comes from environment variables. Yield nothing if that tool
        cannot reach the brokers. rebal itself never removes a member.
        """
        if not self.brokers or self.client is None:
            return
        login = _LOGIN if "-M" in self.client else {}
        reached = (
            *("python", "-m", "kafka.admin", "-b", self.brokers, *self.client),
            *(word for pair in login.items() for word in pair),
        )
        needs = f", and with {' and '.join(login.values())} set" if login else ""
        for instance in instances:
            yield NamedCommand(
                f"only if {instance} is gone for good{needs}: remove its entry",
                Command(
                    *reached,
                    "groups",
                    "remove-members",
                    *option("-g", group),
                    *option("-i", instance),
                ),
            )

    def _of_group(self, command: str, group: str | None, words: tuple[str, ...]) -> Command:
        return rebal(command, () if group is None or self.snapshot else (group,), words)

    def _with(self, more: tuple[str, ...]) -> tuple[str, ...]:
        added = (word for word in more if word not in self.evidence)
        return (*added, *self._where(), *self.evidence)

    def _not_probed(self) -> tuple[str, ...]:
        """Return the evidence options without --assignor and its value.

        As evidence, --assignor names an assignor to probe for; `rebal simulate` would simulate it.
        """
        return _without(self.evidence, "--assignor")

    def _where(self) -> tuple[str, ...]:
        saved = option("--snapshot", self.snapshot) if self.snapshot is not None else ()
        return (*self.connection, *saved)


def read_more(rule: str) -> NamedCommand:
    """Return the command that prints a rule's documentation, beside a finding."""
    return NamedCommand(READ_MORE, explain(rule))


def explain(rule: str) -> Command:
    """Return the command that prints a rule's documentation."""
    return Command("rebal", "explain", rule)


def show(plan: str, *more: str) -> Command:
    """Return the `rebal show` command, which prints the plan in the file `plan`."""
    return rebal("show", (plan,), more)


def _without(words: Iterable[str], *names: str) -> tuple[str, ...]:
    """Return the words of a command line without the options `names` and their values."""
    kept, left = [], iter(words)
    for word in left:
        if word in names:
            next(left, None)
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return tuple(kept)
