"""The client library that a build, lock or image file gives to the consumers of its folder."""

from __future__ import annotations

from rebal.groups.model import Record


class Library(Record, frozen=True, kw_only=True):
    """The client library of a service, and the product that hides it (empty: none does).

    Without a family no file names it. `default_list` is None where it is not known for this
    version. `group_protocol` is False for a product that joins no group. `list_key` is how its
    configuration spells the assignor list, `refuses` one sentence on lists that it does not take.
    `own_list`: the product sets a list in some version, so that of others nothing is known.
    `ecosystem` is the package's or image's, as in a package URL. `faults` are this version's: the
    protocol under which each shows, and what it does. `where` is the file that names the package,
    and `line` the line there (0: not known).
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
        """Return `java 3.9.0`, or `java` where the version is not known."""
        return f"{self.family or 'not known'} {self.version or ''}".rstrip()

    @property
    def product_title(self) -> str:
        """Return `Logstash 8.10.0`; empty where no product hides the library."""
        return f"{self.product} {self.product_version or ''}".rstrip() if self.product else ""
