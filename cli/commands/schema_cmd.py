"""`rebal schema`: the JSON Schema of a document that rebal writes."""

import json
from importlib.resources import files
from typing import Annotated

import typer

from rebal.cli import output
from rebal.cli.errors import DONE, check_known
from rebal.groups.commands import rebal


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A document's name, such as plan; all if none."),
    ] = None,
) -> int:
    """Print the JSON Schema (2020-12) of a document: of -o json and of the files rebal keeps.

    The same schema holds for -o yaml. NAME may also be the document's own `schema`, such as
    rebal.plan/1. Without NAME it lists the names.
    """
    shipped = {
        file.name.removesuffix(".json"): file
        for file in (files("rebal.cli") / "data" / "schemas").iterdir()
    }
    if name is None:
        for known, file in sorted(shipped.items()):
            title = json.loads(file.read_text(encoding="utf-8"))["title"]
            output.write(f"{known:17}  {title}\n")
        output.write(f"\nnext: {rebal('schema', (min(shipped),), ())}\n")
        return DONE
    asked = name.removeprefix("rebal.").partition("/")[0]
    check_known(
        asked,
        shipped,
        f"there is no document {name[:100]}; there are {', '.join(sorted(shipped))}.",
    )
    output.write(shipped[asked].read_text(encoding="utf-8"))
    return DONE
