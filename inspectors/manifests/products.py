"""Products, wrappers and client libraries by package and image: which consumer each runs.

The facts are in groups/data/products.yaml; what a library does by itself is in clients.yaml.
"""

import re
from functools import cache
from typing import Final, Literal

from msgspec.structs import replace

from rebal.groups import clients
from rebal.groups.clients import Library, version_tuple
from rebal.groups.data import load_data
from rebal.groups.model import Record

# Past every patch release of a line.
_END: Final = 1_000_000


class ProductFacts(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of a product from version `first` to `last`, both included; without `last`, of all
    later versions. A fault has a protocol and an effect.
    """

    first: str = "0"
    last: str | None = None
    inside: str | None = None
    library: str | None = None
    list: tuple[str, ...] | None = None
    list_key: str | None = None
    refuses: str | None = None
    source: str | None = None
    protocol: Literal["cooperative", "consumer", ""] = ""
    effect: str = ""

    def holds(self, low: tuple[int, ...], high: tuple[int, ...]) -> bool:
        """Return whether a version from `low` to `high` is one of them."""
        reached = self.last is None or low <= (version_tuple(self.last) or ())
        return reached and (version_tuple(self.first) or ()) <= high


class Product(ProductFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of products.yaml, with the facts of all its versions; the comment at the top of the
    file explains the fields.
    """

    product: str
    names: tuple[str, ...]
    own_version: bool = False
    bom: str = ""
    group_protocol: bool = True
    releases: tuple[ProductFacts, ...] = ()
    faults: tuple[ProductFacts, ...] = ()


@cache
def products() -> dict[tuple[str, str], Product]:
    """Return all products by ecosystem and name."""
    return {
        name.partition(":")[::2]: one
        for one in load_data("products.yaml", dict[str, tuple[Product, ...]])["products"]
        for name in one.names
    }


@cache
def hints(ecosystem: str) -> re.Pattern[str]:
    """Return the pattern of words of which each text that names a product holds one."""
    names = [name for (kind, name), one in products().items() if kind == ecosystem and not one.bom]
    # A Python package's name has many spellings; an image's is short without its folder.
    last = {"docker": "^charts/", "pypi": "-"}.get(ecosystem, "[:/]")
    words = {"kafka" if "kafka" in name else re.split(last, name)[-1] for name in names}
    return re.compile("|".join(map(re.escape, words)), re.IGNORECASE)


def product_of(ecosystem: str, name: str) -> Product | None:
    """Return the product that a package or image is; an image may come from a mirror."""
    # Spellings of one name: with Scala's version, and with any of three signs (PEP 503).
    spelling, plain = {
        "maven": (r"_(?:2\.1\d|3)\Z", ""),
        "pypi": (r"[-_.]+", "-"),
    }.get(ecosystem, (r"\A", ""))
    parts = re.sub(spelling, plain, name.lower() if ecosystem == "pypi" else name).split("/")
    folders = range(len(parts) - 1 if ecosystem == "docker" and len(parts) > 2 else 1)
    found = (products().get((ecosystem, "/".join(parts[folder:]))) for folder in folders)
    return next(filter(None, found), None)


def library_of(ecosystem: str, package: str, version: str | None) -> Library | None:
    """Return the library of the consumers that a package or image brings; None if it is no known
    one.

    `ecosystem` is a package URL's type, `version` None where it is not written.
    """
    product = product_of(ecosystem, package)
    if product is None:
        return None
    # An image's tag `1.9`, or `1.9-debian`, is any release of that line.
    low = version_tuple(version) or ()
    tag = ecosystem == "docker" and len(re.findall(r"(?:\Av?|(?<=\d)\.)\d+", version or "")) < 3
    high = (*low, _END) if low and tag else low
    held = [one for one in product.releases if one.holds(low, high)]
    alike = len({replace(one, first="", last="") for one in held}) == 1
    release = held[0] if alike else ProductFacts()
    family = release.library or product.library
    inside = version if product.own_version else release.inside
    own = release.list or product.list or clients.default_list(family, inside)
    return Library(
        family=family,
        version=inside,
        product="" if product.own_version else product.product,
        product_version=version,
        default_list=own if product.group_protocol else None,
        group_protocol=product.group_protocol,
        list_key=release.list_key or product.list_key,
        refuses=release.refuses or product.refuses,
        own_list=bool(product.list) or any(one.list for one in product.releases),
        ecosystem=ecosystem,
        package=package,
        # A fault that some release of a line may not have is not named.
        faults=tuple(
            (fault.protocol, f"{fault.effect} ({fault.source})")
            for fault in product.faults
            if low and fault.holds(high, low)
        ),
    )
