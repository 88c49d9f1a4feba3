"""Comparison of two versions of a repository for `rebal check`, by the next start of each consumer.

Configuration files declare how a consumer starts next. Its client library is the one in its
container image, else the one in the build manifests of its folder and the folders above. A library
without a configuration file counts as the start of the groups of its folder.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from operator import itemgetter
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from msgspec.structs import replace

from rebal.cli.errors import ReadError, UsageError
from rebal.cli.forked import mapped
from rebal.cli.output import say
from rebal.cli.render.check import CheckDocument
from rebal.cli.sources import GroupSource, read_several
from rebal.groups.clients import Library, default_list
from rebal.groups.errors import DocumentError
from rebal.groups.model import GroupSnapshot, Record, Tri
from rebal.inspectors.files import read_text
from rebal.inspectors.inventory.clients import OF_A_PROFILE
from rebal.inspectors.inventory.reader import is_configuration, read_declared
from rebal.inspectors.manifests.reader import read_manifests, scope_of
from rebal.inspectors.manifests.texts import read_images
from rebal.inspectors.repository.tree import Tree, folder_tree, revision_tree, work_tree
from rebal.planner.check.judge import WORST_FIRST, judge, unread
from rebal.planner.check.starts import PROGRAMS, Start, StartChange, start_of, worlds

_MANY: Final = 500
# Text that declares a consumer's next start, in whatever form.
_OF_A_START: Final = re.compile(
    r"(?:group|application)[._-]?id|group[._-]?(?:protocol|instance)|assignor|assignment"
    r"|rebalanc|kafka:\s*\{\{|toYaml[^\n]*kafka",
    re.IGNORECASE,
)
_VALUE: Final = (
    r"[\"']?(?:[ \t]*[:=]>?|,?\s{0,99}[\"']?value[\"']?[ \t]{0,9}[:=])[ \t]*"
    r"(?:\"[^\"\n]{0,999}\"|'[^'\n]{0,999}'|\[[^]]{0,999}\]|[^\n#]*(?:\n[ \t]*- [^\n]*)*)"
)
# Text that decides a consumer's start, also in a program's own words.
_SETTINGS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # How it starts, and an assignor of Java.
        r"(?:assignor|(?:assign|rebalanc)\w{0,9}(?:[._-]?|:\s{1,99})strateg|\bbalance_strateg"
        rf"|group[._-]?protocol|group[._-]?instance)[\w.-]{{0,20}}(?:{_VALUE}|>[^<\n]*)"
        r"|org\.apache\.kafka\.clients\.consumer\.\w{1,99}",
        # The name of its group, which Quarkus takes from the application; clouds have groups of
        # security and of logs.
        r"(?:(?<![{,(])(?:kafka|consumer|incoming)(?![\w.-]{0,60}(?:security|log)[._-]?group)"
        r"[\w.-]{0,40}?group(?:[._-]?(?:id|name))?"
        rf"|(?<![\w.-])(?:group[._-]?id|quarkus\.application\.name)){_VALUE}",
        # The assignor of the brokers that a member asks for (KIP-848), and what a worker's image
        # gives to sink connectors; no reader takes them.
        r"(?:group[._-]?remote[._-]?assignor|connect_consumer_(?:partition_assign|group_)\w{0,30})"
        rf"{_VALUE}",
    )
)
# A setting about a group that holds a placeholder: what is before it, its name, what follows.
_PLACEHOLDER: Final = re.compile(
    r"((?:group|assign|strateg|application)[^\n:=]{0,80}[:=][^\n]{0,200}?)[$][{(]([\w.-]+)([^\n]*)",
    re.IGNORECASE,
)
# An image in such a file is that of its consumers alone; a product's configuration is beside it.
_OF_ITSELF: Final = (".yaml", ".yml")


class CheckedVersion(Record, frozen=True, kw_only=True):
    """One version of a checked repository: its files, and the consumer starts that they declare.

    `notes` are (file, note) pairs on configuration files; `unread` are such pairs on build
    manifests: a file that cannot be read, a version that is not clear. File names are relative to
    the folder of the version.
    """

    tree: Tree
    starts: tuple[Start, ...]
    notes: tuple[tuple[str, str], ...]
    unread: tuple[tuple[str, str], ...]

    def text(self, file: str) -> str:
        """Return the text of a file; empty if it does not exist or is not text."""
        with suppress(OSError):
            return read_text(self.tree.root / file)
        return ""


def check(
    before: str | None, after: str | None, base: str | None, source: GroupSource
) -> CheckDocument:
    """Return the consumer groups whose next start differs between two versions, with verdicts.

    The versions are the paths `before` and `after`. With `base`, a git revision, they are the
    folder `before` at that revision and as it is now. If `source` names a broker, snapshot or scan,
    the verdict is also on the group as it runs now.

    Raises:
        UsageError: an option adds evidence, but none names a group to add it to.
        RebalError: a path, the repository or the revision does not exist, or a group or a single
            file cannot be read.
    """
    path = Path(before or ".")
    with TemporaryDirectory(prefix="rebal-check-") if base is not None else nullcontext("") as into:
        old = folder_tree(path) if base is None else revision_tree(path, base, Path(into))
        new = folder_tree(Path(after or "")) if base is None else work_tree(path)
        # Both versions of many files are read at once, on two processors.
        number = len(old.files) + len(new.files)
        if number > _MANY and sys.stderr.isatty():
            say(f"reading {number:,} files …")
        one, two = mapped(_read, [old, new], worth_it=number > _MANY)
        return _compared(one, two, source, (base or str(before), after or before or "."))


def _compared(
    one: CheckedVersion, two: CheckedVersion, source: GroupSource, names: tuple[str, str]
) -> CheckDocument:
    """Return the judged differences of consumer starts between the versions `one` and `two`.

    `names` are the names of the two versions in the document.
    """
    differ = list(worlds(one.starts, two.starts))
    live = _live_groups(source, list(dict.fromkeys(w.group_id for w in differ if w.group_id)))
    unknown = dict(_unknown(one, two))
    alone = one.tree.alone and two.tree.alone
    both = one.tree.files if alone else {*one.tree.files} & {*two.tree.files}
    kept = {file: unknown.get(file, "") for file in both}
    found = [
        each
        for world in differ
        for each in [judge(world, kept, live.get(world.group_id or ""))]
        if not world.is_version_alone or each.verdict is not Tri.YES or each.hazards
    ]
    known = {change.file for judgement in found for change in judgement.changes}
    found += [unread(file, note) for file, note in unknown.items() if file not in known]
    located = (
        replace(
            each,
            changes=tuple(
                replace(change, line=change.line or _line(change, each.group_id, one, two))
                for change in each.changes
            ),
        )
        for each in found
    )
    groups = {
        start.declared.group_id or start.folder for side in (one, two) for start in side.starts
    }
    about = (
        note
        for file, note in two.notes
        if not (text := two.text(file)) or "kafka" in text.lower() or _OF_A_START.search(text)
    )
    ours = {start.file for start in two.starts if start.library.family is None}
    images = (
        f"{file}: the image changes, and no file here shows its client library."
        for file in sorted(ours.intersection(both) - known)
        if _images(one.text(file), file) != _images(two.text(file), file)
    )
    return CheckDocument(
        before=names[0],
        after=names[1],
        declared=max(len(groups), len(found)),
        groups=tuple(sorted(located, key=lambda each: WORST_FIRST.index(each.verdict))),
        # Those on files that say a word about Kafka, or that cannot be read as text.
        notes=(*about, *(note for _, note in two.unread), *images),
    )


def _live_groups(source: GroupSource, names: Sequence[str]) -> dict[str, GroupSnapshot]:
    """Return group id → snapshot of the groups `names` that a broker, snapshot or scan shows.

    Empty if `source` names none of these.
    """
    words, lake = source.evidence.option_words, source.evidence.lake
    named = source.snapshot is not None or source.connection.names_broker() or lake
    if words and not named:
        raise UsageError(f"{words[0]} is about live groups: add -b or --snapshot FILE.")
    if not named or not (names or source.snapshot):
        return {}
    found, failures = read_several(source, names, seen_only=True)
    for failure in failures:
        if failure.kind != "not-found":
            raise ReadError(failure.message)
        say(f"{failure.message} It is judged by the files alone.")
    for group in {one.group.group_id for one in found} - {*names}:
        say(f"--snapshot {source.snapshot}: its group {group} does not start differently.")
    return {one.group.group_id: one for one in found}


def _read(tree: Tree) -> CheckedVersion:
    locks = ("package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml")
    configuration = [
        path
        for name, path in tree.paths()
        if tree.alone or (is_configuration(path) and path.name not in locks)
    ]
    found = read_declared(configuration, alone=tree.alone)
    libraries, unknown = read_manifests(tree)
    own, files = f"{tree.root}/", frozenset(tree.files)
    starts = [
        Start(
            file=_file_of(each.where.removeprefix(own), files),
            declared=replace(
                each,
                where=each.where.removeprefix(own),
                sources=tuple(source.removeprefix(own) for source in each.sources),
            ),
        )
        for each in found.declared
    ]
    said = [note.replace(own, "") for note in found.notes if not note.endswith(OF_A_PROFILE)]
    notes, unread = (
        tuple((_file_of(note, files), note) for note in each) for each in (said, unknown)
    )
    return CheckedVersion(
        tree=tree, starts=tuple(_with_libraries(starts, libraries)), notes=notes, unread=unread
    )


def _file_of(where: str, names: Collection[str]) -> str:
    """Return the file name that begins a place or note, such as `a.yaml: Deployment b`.

    `names` are the known files. A text that begins with none of them is returned unchanged.
    """
    ends = [found.start() for found in re.finditer(r"[: ]|\Z", where)]
    return next((where[:end] for end in reversed(ends) if where[:end] in names), where)


def _unknown(one: CheckedVersion, two: CheckedVersion) -> Iterator[tuple[str, str]]:
    """Yield (file, note) for each file whose effect on a consumer start is not known.

    Such a file has a changed setting of assignors, group or protocol that no reader understands. Or
    its reader made a note on it, and the file, or a value that it takes from another, has changed.
    """
    changed = {
        file: (was, now)
        for file in sorted({*one.tree.files, *two.tree.files})
        for was, now in [(one.text(file), two.text(file))]
        if was != now
    }
    starts = (*one.starts, *two.starts)
    # A reader understood the settings of these files that decide how a consumer starts.
    read = {
        file
        for start in starts
        # The lists in a worker's configuration are those of its sink connectors.
        if start.declared.family != "connect"
        and (
            start.declared.list
            or start.declared.group_protocol
            or start.declared.instance_id is not None
        )
        for file in (start.file, *start.declared.sources)
    }
    grouped = {
        file
        for start in starts
        if start.declared.group_id is not None
        for file in (start.file, *start.declared.sources)
    }
    # Builds publish under a group of their own.
    grouped |= {file for file in changed if file.endswith((".gradle", ".kts", ".sbt", ".xml"))}
    for file, (was, now) in changed.items():
        if (
            was
            and now
            and "kafka" in f"{file} {was} {now}".lower()
            and any(
                file not in known and _settings(setting, was) != _settings(setting, now)
                for setting, known in zip(_SETTINGS, (read, grouped, ()), strict=True)
            )
        ):
            yield (
                file,
                f"{file}: a setting of assignors, or of the group's name or protocol, changes, "
                "and is not understood",
            )
    for file, note in (*two.notes, *one.notes):
        was, now = one.text(file), two.text(file)
        old, new = (_PLACEHOLDER.findall(text) for text in (was, now))
        # The values of a chart decide what its templates say; its version does not.
        chart, within, _ = file.rpartition("/templates/")
        values = (n for n in changed if n.startswith(f"{chart}/") and not n.endswith("/Chart.yaml"))
        moved = (
            old != new
            if " from a placeholder " in note
            else file in changed or (within and any(values))
        )
        named = {name for _, name, _ in old + new}
        if _OF_A_START.search(was + now) and (
            moved or any(_sets(named, after + before) for before, after in changed.values())
        ):
            yield file, note
    moved_lines = "\n".join(
        sorted(
            line
            for was, now in changed.values()
            for line in {*was.splitlines()} ^ {*now.splitlines()}
        )
    )
    for file, note in two.unread:
        # A variable in a version that is not a plain one.
        names = re.findall(r"[$][{(]?(\w[\w.]*)", note)
        given = {part for name in names for part in (name, *name.split("."))}
        if file in one.tree.files and ((file, note) not in one.unread or _sets(given, moved_lines)):
            yield file, note


def _images(text: str, file: str) -> list[tuple[str, str]]:
    """Return (name, version) of each container image in a file; empty if it cannot be parsed."""
    with suppress(DocumentError):
        return [(image.name, image.version) for image in read_images(text, file)]
    return []


def _settings(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return what `pattern` matches in `text`: each setting's name with its value.

    Comments are skipped, and spaces and quotes are removed.
    """
    plain = re.sub(r"(?m)^[ \t]*(?:#|//)[^\n]*|[ \t]#[^\n]*", "", text)
    return [re.sub(r"[\s\"']", "", each) for each in pattern.findall(plain)]


def _sets(names: Collection[str], text: str) -> bool:
    """Return whether `text` sets one of the settings `names`, in any of Spring's spellings."""
    loose = ("[._-]?".join(re.findall("[A-Za-z0-9]+", name)) for name in names)
    return any(re.search(rf"(?<!\w){each}\s*[:=,'\"\n]", text, re.IGNORECASE) for each in loose)


def _line(
    change: StartChange, group_id: str | None, one: CheckedVersion, two: CheckedVersion
) -> int:
    """Return the line number of the setting that `change` is about; 0 if no line shows it.

    If several lines show it, the one nearest to a line with the group's id is returned. If no line
    names the setting, it is a line with the group's id or with the new version.
    """
    text, version = two.text(change.file) or one.text(change.file), change.after.rpartition(" ")[2]
    worker = "connectprotocol" in re.sub("[^A-Za-z0-9]", "", text).lower()
    letters = {
        "assignor list": "connectprotocol" if worker else "strateg",
        "consumer": "groupid",
    }.get(change.what, change.what.replace(".", "").removesuffix("ms"))
    lines = [*enumerate(text.splitlines(), 1)]
    own = [n for n, line in lines if group_id and group_id in line]
    found = [n for n, line in lines if letters in re.sub("[^A-Za-z0-9]", "", line).lower()]
    near = (found or own or [n for n, line in lines if version.strip("()") in line]) or [0]
    return min(near, key=lambda n: abs(n - (own or [0])[0]))


def _with_libraries(starts: Sequence[Start], libraries: Sequence[Library]) -> list[Start]:
    """Return `starts`, each with its client library, and one more start for each unused library.

    A library is unused if it applies to none of `starts`.
    """
    by_folder: dict[PurePosixPath, list[Library]] = defaultdict(list)
    for one in libraries:
        by_folder[PurePosixPath(scope_of(one.where))].append(one)
    found = [(start, _near(start.file, start.family, by_folder)) for start in starts]
    made = [replace(start, library=_together(near)) for start, near in found]
    used = {one for _, near in found for one in near}
    for own in sorted(libraries, key=lambda each: -each.where.count("/")):
        if own not in used:
            # Facts of others count for a package that no configuration is of: those of its file,
            # and where versions are inherited, or are missing, those from above.
            inherits = own.product_version is None or own.ecosystem in ("maven", "nuget")
            near = [own]
            near += (
                other
                for other in _near(own.where, own.family, by_folder)
                if other.ecosystem == own.ecosystem and (inherits or other.where == own.where)
            )
            used.update(near)
            made.append(start_of(own.where, _together(near)))
    return made


def _near(
    file: str, family: str | None, by_folder: Mapping[PurePosixPath, Sequence[Library]]
) -> list[Library]:
    """Return the client libraries that apply to the consumers in `file`, the nearest folder first.

    All are of one client family. Empty if the nearest folder has several, and nothing shows which
    one applies.
    """
    found = sorted(
        (
            (0 if one.where == file else far, one)
            for far, at in enumerate(PurePosixPath(file).parents, 1)
            for one in by_folder.get(at, ())
            if one.where == file or not one.where.endswith(_OF_ITSELF) or (far == 1 and one.product)
        ),
        key=itemgetter(0),
    )
    own = [(far, one) for far, one in found if one.family == family]
    java = [(far, one) for far, one in found if one.family == "java" and family in PROGRAMS]
    # A program says so in its configuration, and has an application id.
    others = [(far, one) for far, one in found if far < 2 or family is None]
    fitting = (
        own or java or [(far, one) for far, one in others if one.family not in PROGRAMS] or others
    )
    first = [one for far, one in fitting if far == fitting[0][0]]
    kinds = {one.family for one in first}
    images = {(one.product, one.version) for one in first if one.where.endswith(_OF_ITSELF)}
    return [one for _, one in fitting if {one.family} == kinds and len(images) < 2]


def _together(near: Sequence[Library]) -> Library:
    """Merge records of one client library, such as its own and that of a product with it, into one.

    A version of the client library itself is preferred to the one that the product implies. If
    `near` is empty, the result is a library of which nothing is known.
    """
    itself = next((one for one in near if not one.product and one.version), None)
    product = next((one for one in near if one.product), None)
    known = itself or next((one for one in near if one.version), next(iter(near), Library()))
    if product is None:
        return known
    place = known if itself else product
    own_list = product.default_list not in (None, default_list(product.family, product.version))
    return replace(
        product,
        version=known.version,
        default_list=product.default_list if own_list else known.default_list,
        where=place.where,
        line=place.line,
    )
