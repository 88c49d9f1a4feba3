"""The files in one version of a repository that rebal can read.

A git revision is read with `git ls-tree` and `git cat-file`: no hook, filter or attribute of the
repository runs, and neither its index nor its files are changed.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Final

from rebal.groups.errors import DocumentError
from rebal.groups.model import Record
from rebal.inspectors.inventory.documents import ENDINGS

_BUILD: Final = (
    *("csproj", "fsproj", "vbproj", "props", "targets", "gradle", "kts", "toml", "xml", "mod"),
    *("lock", "txt", "exs", "dockerfile", "work", "tf", "hcl", "ini", "sbt", "lockfile"),
    # Templates of Helm, Ansible and others, whose settings may be named.
    *("tpl", "j2", "tmpl", "erb"),
)
# Folders of dependencies and builds, of translations, and of tests' own resources.
_SKIPPED: Final = (
    *("node_modules", "vendor", "target", "build", "dist", "__pycache__", "venv"),
    *("locale", "locales", "i18n"),
    *("tests", "testdata"),
)
_LARGEST: Final = 64 << 20


class Tree(Record, frozen=True, kw_only=True):
    """One version of a repository: a folder, and the paths of the files to read in it, sorted.

    `alone` is True if a single file was named instead of a folder.
    """

    root: Path
    files: tuple[str, ...]
    alone: bool = False

    def paths(self) -> Iterator[tuple[str, Path]]:
        """Return, for each file, its name relative to the root and its path."""
        return ((name, self.root / name) for name in self.files)


def folder_tree(path: Path) -> Tree:
    """Return the files to read in the folder `path`; if it is a file, that file alone.

    Raises:
        DocumentError: there is no such path.
    """
    if not os.path.isdir(path):
        if not os.path.lexists(path):
            raise DocumentError(f"{path}: there is no such file or folder.")
        return Tree(root=path.parent, files=(path.name,), alone=True)
    found: list[str] = []
    for folder, below, names in os.walk(path):
        inside = Path(folder).relative_to(path).as_posix()
        below[:] = sorted(name for name in below if is_read(PurePosixPath(inside, name, "a.yaml")))
        found += (PurePosixPath(inside, name).as_posix() for name in names)
    return _tree(path, found)


def work_tree(path: Path) -> Tree:
    """Return the tracked and untracked files to read in a git working tree, below `path`.

    Files that git ignores are left out.

    Raises:
        DocumentError: git is missing, or `path` is in no repository.
    """
    return _tree(
        path,
        _git(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        .decode("utf-8", "surrogateescape")
        .split("\0"),
    )


def revision_tree(path: Path, revision: str, into: Path) -> Tree:
    """Write the files to read of the git `revision` to the folder `into`, and return them.

    Only files below `path` are written.

    Raises:
        DocumentError: git is missing, `path` is in no repository, the repository has no such
            revision, or the clone lacks a file's contents.
    """
    # Git's own words on a path that is no folder of any repository come first.
    _git(path, "rev-parse", "--git-dir")
    listing = _git(
        path,
        *("ls-tree", "-r", "-z", "-l", "--end-of-options", f"{revision}^{{commit}}"),
        otherwise=f"--base {revision}: this repository has no such revision; fetch it, or name "
        "another.",
    ).decode("utf-8", "surrogateescape")
    # Git prints BAD for contents that the clone lacks; only those of files to read count.
    blobs = {
        into / name: blob
        # A regular file; a symbolic link has the mode 120000.
        for blob, size, name in re.findall(
            r"(?:\A|\0)100\d{3} blob (\w+) +(\S+)\t([^\0]+)", listing
        )
        if is_read(PurePosixPath(name)) and (not size.isdigit() or int(size) <= _LARGEST)
    }
    asked = "".join(f"{blob}\n" for blob in blobs.values()).encode()
    answers = BytesIO(_git(path, "cat-file", "--batch", given=asked))
    for file in blobs:
        *_, size = answers.readline().decode().split()
        if not size.isdigit():
            raise DocumentError(f"{file.name}: this clone lacks its contents; fetch them first.")
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "wb") as written:
            written.write(answers.read(int(size)))
        answers.readline()
    return folder_tree(into)


def is_read(name: PurePosixPath) -> bool:
    """Return whether rebal reads a file of this name: a configuration, build or template file.

    Files in folders of dependencies, builds, translations or tests, or in hidden folders, are not
    read.
    """
    folders = name.parts[:-1]
    skipped = any(part in _SKIPPED or (part.startswith(".") and part != ".") for part in folders)
    # Sources in which a build names versions.
    sources = r"(?:.*/)?(?:(?:buildSrc|build-logic)/.*\.(?:kt|java|groovy)|project/[^/]*\.scala)"
    # A folder `test` elsewhere is as often an environment's.
    return not (skipped or "/src/test/" in f"/{'/'.join(folders)}/") and (
        name.name.rpartition(".")[2].lower() in (*ENDINGS, *_BUILD)
        or name.name.startswith(("Dockerfile", "Containerfile", "Gemfile", "Pipfile", "setup.py"))
        or re.fullmatch(sources, name.as_posix()) is not None
    )


def _tree(root: Path, names: Iterable[str]) -> Tree:
    return Tree(
        root=root,
        files=tuple(
            sorted(n for n in names if is_read(PurePosixPath(n)) and os.path.isfile(root / n))
        ),
    )


def _git(path: Path, *words: str, given: bytes = b"", otherwise: str = "") -> bytes:
    """Run git in the folder `path` with `given` as its input, and return its output.

    Raises:
        DocumentError: git is missing, or fails; the message is `otherwise`, else git's own.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(path), *words],
            check=False,
            input=given,
            capture_output=True,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise DocumentError("--base needs git, which is not installed here.") from None
    if done.returncode == 0:
        return done.stdout
    reason = (
        done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("fatal: ")
    )
    raise DocumentError(otherwise or f"--base: {path}: git says: {reason}")
