"""The client libraries of a repository's services: its manifests beside its configuration files.

A consumer's library is that of its own image, else of the manifests in its folder and the folders
above. A library that no configuration file belongs to stands for the groups of its folder.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Final

from msgspec.structs import replace

from rebal.groups.clients import Library, default_list
from rebal.inspectors.manifests.reader import scope_of
from rebal.planner.check.starts import PROGRAMS, Start, start_of

# A project takes versions from the projects above it.
_INHERITED: Final = ("maven", "nuget")
# An image in such a file is that of its consumers alone; a product's configuration is beside it.
_OF_ITSELF: Final = (".yaml", ".yml")


def with_libraries(starts: Sequence[Start], libraries: Sequence[Library]) -> list[Start]:
    """Return the starts with their libraries, and one for each library that none of them has."""
    by_folder: dict[PurePosixPath, list[Library]] = defaultdict(list)
    for one in libraries:
        by_folder[PurePosixPath(scope_of(one.where))].append(one)

    def near_to(file: str, family: str | None) -> list[Library]:
        above = enumerate(PurePosixPath(file).parents, 1)
        return _near(
            file, [(far, one) for far, at in above for one in by_folder.get(at, ())], family
        )

    used: set[Library] = set()
    made: list[Start] = []
    for start in starts:
        near = near_to(start.file, start.family)
        used.update(near)
        made.append(replace(start, library=_together(near)))
    for own in sorted(libraries, key=lambda each: -each.where.count("/")):
        if own not in used:
            near = [own, *filter(partial(_is_of, own), near_to(own.where, own.family))]
            used.update(near)
            made.append(start_of(own.where, _together(near)))
    return made


def _is_of(own: Library, other: Library) -> bool:
    """Return whether facts of the other one count for a package that no configuration is of: those
    of its file, and where versions are inherited, or are missing, those from above.
    """
    below = own.product_version is None or own.ecosystem in _INHERITED or own.where == other.where
    return below and own.ecosystem == other.ecosystem


def _near(file: str, above: Sequence[tuple[int, Library]], family: str | None) -> list[Library]:
    """Return the libraries of the consumers in `file`, the nearest first: those of one family.

    `above` are those of its folder (1) and the folders above. Empty where the nearest folder has
    several, and nothing says which one is meant.
    """
    near = ((0 if one.where == file else far, one) for far, one in above)
    found = sorted((each for each in near if _is_shared(*each)), key=itemgetter(0))
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
    clear = len(kinds) == 1 and len(images) < 2
    return [one for _, one in fitting if one.family in kinds] if clear else []


def _is_shared(far: int, library: Library) -> bool:
    """Return whether a file has the library that another one names, so many folders above it."""
    return (
        far == 0 or not library.where.endswith(_OF_ITSELF) or (far == 1 and library.product != "")
    )


def _together(near: Sequence[Library]) -> Library:
    """Return one library of several facts: the version that is written beats that of a product."""
    if not near:
        return Library()
    itself = next((one for one in near if not one.product and one.version), None)
    product = next((one for one in near if one.product), None)
    known = itself or next((one for one in near if one.version), near[0])
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
