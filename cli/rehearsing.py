"""Rehearsals as the options of `rebal rehearse` ask for them: reading, running and printing."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from rebal.cli import output
from rebal.cli.custom import custom_assignors
from rebal.cli.errors import FileError, UsageError, check_known, did_you_mean, refuse
from rebal.cli.files import read_text, write_text
from rebal.cli.params import ENDINGS
from rebal.cli.render.simulation.documents import RehearsalDocument, RunDocument, code_of
from rebal.cli.render.simulation.lanes import rehearsal_html
from rebal.cli.render.simulation.rehearsal import comparison_view, rehearsal_view
from rebal.cli.render.text import read_from
from rebal.cli.sources import GroupSource
from rebal.cli.verifying import check_same, read_plan
from rebal.groups.assignors import NAMES, Assignor
from rebal.groups.commands import Command, option, options
from rebal.groups.model import GroupSnapshot, Record, Tri
from rebal.groups.snapshot.documents import format_of
from rebal.planner.commands import Given
from rebal.planner.context import Context
from rebal.planner.facts import names
from rebal.planner.kip848 import NEEDS, brokers
from rebal.planner.plan import Plan
from rebal.planner.rehearsal.outcome import Distribution, Rehearsal
from rebal.planner.rehearsal.rehearse import Rollout, distribution, rehearse, rehearse_often
from rebal.planner.rehearsal.scene import (
    METADATA_AGE,
    NOW,
    PARAMETERS,
    PLAN,
    VARIANTS,
    parameter_values,
    scene_of,
    value_of,
    variant,
    with_parameters,
)
from rebal.planner.rehearsal.script_file import ScriptError, ScriptText, load_script, script_of
from rebal.planner.rehearsal.scripts import (
    READY,
    Scene,
    Script,
    ScriptPace,
    about,
    processes,
    ready_script,
    rollout,
    too_old,
    upgraded,
)
from rebal.planner.rehearsal.spec import assigns_tasks
from rebal.planner.timeouts import Speed

# Changes of owner that are kept for lanes and documents: a large group has millions.
_MOST_KEPT: Final = 1_000_000


class Asked(Record, frozen=True, kw_only=True):
    """The options of one rehearsal, as typed.

    `batch` is the number of processes that restart together (0: all, None: the script's own
    default).
    """

    plan: Path | None = None
    script: str | None = None
    compare: tuple[str, ...] = ()
    seed: int = 0
    runs: int = 1
    batch: int | None = None
    parameters: tuple[str, ...] = ()

    def option_words(self) -> tuple[str, ...]:
        """Return these options as words of a printed command, without the plan and --runs."""
        return (
            *(option("--script", self.script) if self.script else ()),
            *(option("--compare", ",".join(self.compare)) if self.compare else ()),
            *(() if self.batch is None else ("--batch", str(self.batch or "all"))),
            *options("--param", self.parameters),
            *(("--seed", str(self.seed)) if self.seed else ()),
        )


def rehearse_group(
    source: GroupSource,
    asked: Asked,
    *,
    form: output.RehearseFormat,
    wide: bool,
    details: bool,
    exit_zero: bool,
    html: Path | None,
) -> int:
    """Rehearse what the options ask for, print it, and return the exit code.

    Raises:
        UsageError: options that do not fit each other, a name that is not known.
        RebalError: the plan, the script or the group cannot be read, or cannot be rehearsed.
    """
    check(asked)
    if asked.plan is not None and not os.path.exists(asked.plan):
        raise FileError(
            f"{asked.plan}: there is no such plan file. A live group without a plan is rehearsed "
            "with --group NAME --script rolling."
        )
    paged = form == "html" or html is not None
    if paged and len(asked.compare) > 1:
        raise UsageError("an HTML page shows one rehearsal: name one protocol with --compare.")
    plan = None if asked.plan is None else read_plan(asked.plan).kept_as(str(asked.plan))
    script = _script_text(asked.script)
    named = source.group is not None or source.snapshot is not None or plan is None
    if plan is not None and not named:
        found, where = source.added_to(plan.baseline), "as planned"
    else:
        source = source.named()
        found, where = source.read(), str(source.snapshot or "live")
        if plan is not None:
            check_same(plan, found)
    document = rehearsed(found, asked, plan, script, keep=paged)
    code = code_of(document.runs, exit_zero=exit_zero)
    page = rehearsal_html(document.runs[0].rehearsal, document.group_id) if paged else ""
    if html is not None:
        write_text(html, page)
        output.say(f"wrote {html}")
    if form == "html":
        output.write(page)
    elif form == "text":
        words = source.connection.given(
            evidence=source.evidence.option_words, snapshot=source.snapshot
        )
        words = replace(words, plan=str(asked.plan)) if plan is not None else words
        following = _next(found, plan, words, asked, named=named)
        read = read_from(where, found.captured_at)
        output.page(
            comparison_view(document, read, following)
            if len(document.runs) > 1
            else rehearsal_view(document, read, following, details=details),
            wide=wide,
        )
    else:
        output.write(output.envelope("rehearsal", document, code, form))
    return code


def check(asked: Asked) -> None:
    """Check the options as far as that is possible without the group.

    Raises:
        UsageError: one of them is wrong.
    """
    for name in asked.compare:
        check_known(name, VARIANTS, f"--compare {name[:60]}: there is {', '.join(VARIANTS)}.")
    refuse(
        {
            "--compare plan rehearses a plan: name the PLAN.": (
                PLAN in asked.compare and asked.plan is None
            ),
            "there is nothing to rehearse: name a PLAN, or add --script NAME|FILE.": (
                asked.plan is None and asked.script is None
            ),
        }
    )
    script = asked.script
    if script is None or is_file(script):
        return
    try:
        about(script)
    except KeyError:
        raise UsageError(
            f"--script {script[:100]}: there is no such file or ready script; there are "
            f"{', '.join(READY)} and N-at-a-time.{did_you_mean(script, READY)}"
        ) from None
    if asked.plan is not None:
        raise UsageError(
            f"--script {script} is a script of its own: leave out the plan (a live group: "
            "--group NAME), or name the plan's steps in a script file (`- step: 1`)."
        )


def is_file(script: str) -> bool:
    """Return whether the value of `--script` is a file: by its ending, or because it exists."""
    return Path(script).suffix.lower() in ENDINGS or Path(script).is_file()


@contextmanager
def _nearest_names() -> Iterator[None]:
    try:
        yield
    except ScriptError as error:
        raise ScriptError(
            f"{error}{did_you_mean(error.word, error.known) if error.word else ''}"
        ) from None


@_nearest_names()
def _script_text(script: str | None) -> ScriptText | None:
    if script is None or not is_file(script):
        return None
    return load_script(read_text(Path(script)), format_of(script), script)


def _parameters(texts: Sequence[str]) -> dict[str, float]:
    made: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in PARAMETERS or name in made:
            raise UsageError(
                f"--param {text[:60]}: write NAME=TIME; names are {', '.join(PARAMETERS)}, each "
                "once, and --restart-seconds is restart."
                f"{did_you_mean(name, PARAMETERS.keys() - made.keys())}"
            )
        try:
            made[name] = value_of(name, value)
        except ValueError as error:
            raise UsageError(f"--param {text[:60]}: {error}.") from None
    return made


@_nearest_names()
def rehearsed(
    found: GroupSnapshot,
    asked: Asked,
    plan: Plan | None,
    source: ScriptText | None,
    *,
    keep: bool,
) -> RehearsalDocument:
    """Rehearse the plan or the script in each variant of --compare, and return the results.

    The owners of partitions over time are kept if they are not too many, or if `keep` is True.

    Raises:
        UsageError: nothing is left to rehearse, or the script does not fit the group.
        RebalError: the group cannot be rehearsed.
    """
    others = [name for name in asked.compare if name not in (PLAN, NOW)]
    if others and assigns_tasks(found):
        raise UsageError(
            f"--compare {others[0]}: the members of {found.group.group_id} assign tasks by their "
            f"own protocol: only {PLAN} and {NOW} apply."
        )
    given = {**({} if source is None else source.parameters()), **_parameters(asked.parameters)}
    scene, assumes = scene_of(
        found,
        speed=Speed(restart=given.get("restart", Speed().restart)),
        families=_families(found, plan),
    )
    answers = {kind: brokers(Context(found), kind) for kind in NEEDS}
    lacking = frozenset(kind for kind, each in answers.items() if each.allows is Tri.NO)
    scene = replace(scene, brokers=replace(scene.brokers, lacking=lacking))
    scene = with_parameters(scene, given)
    custom = _custom(scene, plan)
    batch = 1 if asked.batch is None else asked.batch
    roll = Script() if plan is None else _of_members(rollout(plan, batch=batch), scene)
    scene, upgrades = upgraded(scene, roll)
    assumes += upgrades
    if source is not None:
        if plan is not None and not any(item.step for item in source.file.events):
            raise UsageError(
                f"{asked.plan}: no event of {source.name} is a step of the plan: add `- step: 1`, "
                "or leave out the plan."
            )
        script = script_of(
            source,
            scene,
            plan=plan,
            batch=batch,
            metadata=given.get("metadata", METADATA_AGE),
            assignors=custom,
        )
    else:
        script = roll if plan is not None else _ready(found, scene, asked)
    protocols = {event.protocol for event in script.events} | {*asked.compare}
    assumes += tuple(
        each.why
        for kind, each in answers.items()
        if kind in protocols and each.allows is Tri.CANNOT_TELL
    )
    old = too_old(scene, script)
    refuse(
        {
            "no step of the plan is left, so there is nothing to rehearse.": not script.events,
            old: old,
        }
    )
    if asked.runs > 1 and sys.stderr.isatty():
        output.say(f"rehearsing {asked.runs:,} runs …")
    runs = []
    own = PLAN if plan is not None else NOW
    for name in asked.compare or (own,):
        group, played = (scene, script) if name == own else variant(scene, script, name)
        run, often = _run(group, played, asked, custom, keep=keep)
        assumes += tuple(text for text in run.assumes if text not in assumes)
        runs.append(RunDocument(name=name, rehearsal=run, distribution=often))
    return RehearsalDocument(
        group_id=found.group.group_id,
        captured_at=found.captured_at,
        members=len(scene.running),
        partitions=sum(scene.topics.values()) + sum(n + 1 for n in scene.connectors.values()),
        plan=None if asked.plan is None else str(asked.plan),
        script=asked.script,
        about=script.about if asked.script else "",
        seed=asked.seed,
        parameters=parameter_values(scene, given),
        assumes=assumes,
        runs=tuple(runs),
        unit=runs[0].rehearsal.unit,
    )


def _run(
    scene: Scene,
    script: Script,
    asked: Asked,
    custom: Mapping[str, Assignor],
    *,
    keep: bool,
) -> tuple[Rehearsal, Distribution | None]:
    """Return the rehearsal with the first seed, and the distribution over several (None: one).

    If all restarts would take too long, one restart of each kind is rehearsed and counts for the
    others of that kind. Otherwise the owners of partitions over time are kept if they are not too
    many, or if `keep` is True.
    """
    whole = Rollout(scene, script)
    if whole.too_long:
        run = whole.rehearse(seed=asked.seed, assignors=custom)
        if asked.runs == 1:
            return run, None
        seeds = range(asked.seed, asked.seed + asked.runs)
        return run, distribution([whole.rehearse(seed=seed, assignors=custom) for seed in seeds])
    run = rehearse(
        scene, script, seed=asked.seed, keep=keep or _kept(scene, script), assignors=custom
    )
    if asked.runs == 1:
        return run, None
    return run, rehearse_often(scene, script, runs=asked.runs, seed=asked.seed, assignors=custom)


def _ready(found: GroupSnapshot, scene: Scene, asked: Asked) -> Script:
    called = names(found.members)
    hosts: dict[str, list[str]] = {}
    for member in found.members:
        if member.host:
            hosts.setdefault(member.host, []).append(called[member.member_id])
    pace = ScriptPace(hosts=hosts, processes=processes(found, called), batch=asked.batch)
    made = ready_script(asked.script or "", scene, pace)
    assert made is not None, "the name was checked"
    return made


def _of_members(script: Script, scene: Scene) -> Script:
    """Return the script without members that are not in the group.

    A plan's script may be rehearsed on another group, or on the group at another time.
    """
    there = {one.process.name for one in scene.running}
    events = [
        replace(event, members=tuple(name for name in event.members if name in there))
        for event in script.events
    ]
    return replace(
        script,
        events=tuple(
            event
            for event, before in zip(events, script.events, strict=True)
            if event.members or not before.members
        ),
    )


def _families(found: GroupSnapshot, plan: Plan | None) -> dict[str, str | None]:
    accepted = plan.accepted.families if plan is not None else {}
    return {
        member.member_id: family
        for member in found.members
        if member.software is None or member.software.family is None
        if (family := accepted.get(member.client_id, accepted.get("*"))) is not None
    }


def _custom(scene: Scene, plan: Plan | None) -> dict[str, Assignor]:
    lists = [one.process.assignors for one in scene.running]
    lists += [step.target_list for step in plan.steps] if plan is not None else []
    return custom_assignors(sorted({name for list_ in lists for name in list_} - {*NAMES}))


def _kept(scene: Scene, script: Script) -> bool:
    restarted = sum(len(event.members) or len(event.processes) for event in script.events)
    return 2 * (restarted + 1) * sum(scene.topics.values()) <= _MOST_KEPT


def _next(
    found: GroupSnapshot, plan: Plan | None, given: Given, asked: Asked, *, named: bool
) -> Command:
    """Return the command to print last: --runs 100 after one run, else a check or a new plan.

    The check is `rebal verify` of the rehearsed plan; without a plan it is `rebal plan-upgrade`.
    """
    group = found.group.group_id
    if asked.runs == 1:
        return given.rehearse(group if named else None, *asked.option_words(), "--runs", "100")
    return plan.given.verify() if plan is not None else given.plan_upgrade(group)
