"""A page of each rule for docs: `make pictures` writes docs/rules from the rules' own texts.

A page is what `rebal explain` prints of the rule; README.md beside them lists all.
"""

import sys
from pathlib import Path
from typing import Final

from rebal.planner.rules import rules
from rebal.planner.rules.registry import Rule

_INDEX: Final = """# The rules

What `rebal` finds, by number: `rebal explain RB102` prints the same page. *block*: no restart is
advised while it stands; *warn*: it costs something; *ask*: only you know the answer.

| rule | severity | finds |
| --- | --- | --- |
"""


def rule_pages() -> dict[str, str]:
    """Return file name → text of each page in docs/rules."""
    known = rules().values()
    rows = (f"| [{one.id}]({one.id}.md) | {one.severity.value} | {one.title} |\n" for one in known)
    return {"README.md": _INDEX + "".join(rows)} | {f"{one.id}.md": _page(one) for one in known}


def _page(rule: Rule) -> str:
    # A place in the text, such as <member id>, is no HTML.
    doc = rule.doc.replace("<", "&lt;")
    head = f"# {rule.id}: {rule.title}\n\nSeverity: {rule.severity.value}. [All rules](README.md)"
    return f"{head}\n\n{doc}\n\nReference: {rule.reference}\n"


def main() -> None:
    """Write the pages into the folder `rules` of the folder that is named."""
    folder = Path(sys.argv[1]) / "rules"
    folder.mkdir(exist_ok=True)
    for name, text in rule_pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
