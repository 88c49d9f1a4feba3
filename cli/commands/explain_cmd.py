"""`rebal explain`: what a rule says, why, how to find out and how to fix it."""

from typing import Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, check_known
from rebal.cli.render.documents import Document, document_of
from rebal.planner.commands import explain
from rebal.planner.plan import Severity


class RuleDocument(Document, frozen=True, kw_only=True):
    """One rule of `rebal.rules/1`."""

    rule: str
    severity: Severity
    title: str
    reference: str
    doc: str


class RulesDocument(Document, frozen=True, kw_only=True):
    """The body of `rebal.rules/1`."""

    rules: list[RuleDocument]


def command(
    rule: Annotated[
        str | None,
        typer.Argument(metavar="RULE", help="The rule's id, such as RB102 (default: list all)."),
    ] = None,
    *,
    form: params.Output = "text",
) -> int:
    """Explain a rule: what it finds, why it matters, how to find out, how to fix it.

    Without RULE it lists all of them.
    """
    from rebal.planner.rules import rules

    known = rules()
    chosen = list(known.values())
    if rule is not None:
        asked = rule.upper()
        check_known(asked, known, f"there is no rule {rule[:100]}; rebal explain lists them all.")
        chosen = [known[asked]]
    if form != "text":
        body = RulesDocument(rules=[document_of(RuleDocument, one, rule=one.id) for one in chosen])
        output.write(output.envelope("rules", body, DONE, form))
    elif rule is None:
        for one in chosen:
            output.print_text(f"{one.id}  {one.severity.value:5}  {one.title}\n")
        output.print_text(f"\nnext: {explain(chosen[0].id)}\n")
    else:
        one = chosen[0]
        output.print_text(f"{one.id}  {one.severity.value}  {one.title}\n\n{one.doc}\n\n")
        output.print_text(f"reference: {one.reference}\n")
    return DONE
