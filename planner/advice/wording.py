"""The text of advice: the only module that words an instruction to restart, start or stop a member.

It decides nothing. A text is made from an `Advice` that the admission check has judged
(planner/advice/actions.py), or for a step whose first restart that check has judged.
"""

from collections.abc import Sequence
from typing import Final

from rebal.groups.model import Tri
from rebal.planner.facts import listed
from rebal.planner.plan import Action, Advice
from rebal.planner.settings import WITHOUT

_VERBS: Final = {
    Action.RESTART: "restart",
    Action.START: "start",
    Action.CUT_OVER: "stop and start",
    Action.TEMPORARY: "start one more member",
}
_HOW: Final = {
    "probe": "--probe",
    "client log": "--client-log of their start",
    "inventory": "--inventory with their configuration (you then confirm it)",
    "request log": "--request-log across a rebalance",
    "offsets topic": "--probe with the right to READ __consumer_offsets",
    "log timezone": "--log-timezone of the logs",
    "broker settings": "-b HOST:PORT with the right to DESCRIBE_CONFIGS",
}

ONE_BY_ONE: Final = "one by one: stop cleanly (no kill or surge), start, wait for Stable"
ONE_INSTANCE: Final = (
    "one by one: stop cleanly, start, wait for Stable; an instance does not leave when it stops, "
    "so its partitions stop until its session ends"
)
ONE_WORKER: Final = "one by one: stop cleanly, start, wait until its connectors are RUNNING"
BACK_ONE_BY_ONE: Final = "restart the members with group.protocol=consumer, one by one"
# Texts with places for names: `str.format` fills them.
STOP_THEN_START: Final = "Stop every {whom}, start all {how}"
ALL_AT_ONCE: Final = "stop all cleanly (every service, site), {empty}, start all"
STOP_SOME: Final = (
    "stop them all cleanly (no kill), see the group Stable with {left} members{sees}, then start "
    "them"
)
IN_ITS_OWN_GROUP: Final = (
    "or, without a stop, a group of its own ({group}): write the old group's committed offsets to "
    "{file} (lines `topic,partition,offset`), copy them, with a dry run first, start the new "
    "library in that group, and stop the old members when its lag is as low as theirs; what both "
    "read meanwhile is processed twice, and nothing is lost"
)
NEXT_REBALANCE: Final = (
    "or have {who} proven by the next rebalance: wait for your next deployment, or start one more "
    "member with [{names}] and stop it once the group is Stable (usually 3 rebalances, each stops "
    "only the partitions that move)"
)
# The rollback of a step in which some members stop, and of one in which the whole group stops.
BACK_FROM_STOP: Final = "stop them, start with [{keep}] while elected, then plan --to {goal}"
BACK_OVER_STOP: Final = "stop all, see it Empty, start all with {change}"
AFTER_THE_LAST: Final = "; after the last, stop all (RB507)"
START_EMPTY: Final = (
    "Start the members and ask again. (While a group is Empty, members that all start with the "
    "same list can use any list.)"
)

TEMPORARY_AFTER: Final = (
    "it leaves when the group is Stable, cleanly; then the group must be Stable again",
    "it must not have the instance id of another member",
)


def worded(advice: Advice) -> str:
    """Return the advice as one text, such as `restart a with [range]; one member at a time`."""
    begins = f"begin step {advice.step}: " if advice.begins else ""
    return "; ".join([begins + _clause(advice), *advice.also])


def _clause(advice: Advice) -> str:
    who = listed(advice.names)
    brings = f"with {advice.change or 'its CURRENT list (no change of configuration)'}"
    look = "look at each of them"
    if advice.assignors:
        shown = f"with [{', '.join(advice.assignors)}]"
        brings = f"{shown} and {advice.change}" if advice.change else shown
        look = f"check at {who} that the process was started {shown} after step {advice.step} began"
    # A start that is not admitted is waited for, by name.
    verb = _VERBS.get(advice.action, "start")
    how = ", or ".join(_HOW.get(kind, kind) for kind in advice.evidence_needed)
    barred = advice.action in _VERBS or (advice.action is Action.WAIT and bool(advice.names))
    if barred and advice.verdict is not Tri.YES:
        start = " ".join(filter(None, (verb, who, brings.partition(WITHOUT)[0])))
        open_ = "rejected" if advice.verdict is Tri.NO else "not proven to be admitted"
        add = f"; add {how}" if how and advice.action is Action.WAIT else ""
        return f"do not {start}: {open_}, {advice.reason}{add}"
    logs = f"give {how}; else " if how else ""
    one = len(advice.names) == 1 and not who.endswith("members")
    texts = {
        # All threads of a process are members.
        Action.RESTART: f"restart {who} {brings}; "
        f"one {'process' if len(advice.members) > 1 else 'member'} at a time",
        Action.START: f"start {who} {brings}, if {'it is' if one else 'they are'} down",
        Action.TEMPORARY: f"start one more member {brings}, wait until the group is Stable, then "
        "stop it",
        Action.CUT_OVER: f"stop {who}{'' if one else ' together'}, {', '.join(advice.after[:1])}, "
        f"then start {'it' if one else 'them'} {brings}",
        Action.EVIDENCE: f"add {how}: {advice.reason}",
        Action.CONFIRM: f"{logs}{look}, then confirm it",
        Action.WAIT: f"wait: {advice.reason}",
        Action.REPLAN: f"make a new plan: {advice.reason}",
    }
    return texts.get(advice.action, advice.reason)


def proven_and_confirmed(done: int, vouched: Sequence[str]) -> str:
    """Return a text such as `proven: 2, confirmed by you: 1 (checkout-3)`.

    `done` is the number of all members that are done, `vouched` names those that the operator
    confirmed.
    """
    return f"proven: {done - len(vouched)}, confirmed by you: {len(vouched)} ({', '.join(vouched)})"


def sentence(advice: Advice) -> str:
    """Return the advice as one sentence, with a capital letter and a full stop."""
    said = worded(advice)
    return f"{said[:1].upper()}{said[1:]}."


def restart_these(who: str, assignors: Sequence[str], *, before: str, after: str) -> str:
    """Return the sentence `before`, followed by the instruction to restart `who`.

    `assignors` is the list to restart with (empty: not named). The text `after` ends the
    instruction, before its full stop.
    """
    brings = f" with [{', '.join(assignors)}]" if assignors else ""
    return f"{before} Restart {who}{brings}{after}.".lstrip()


def start_all(how: str, warning: str = "") -> str:
    """Return the instruction to start all members of an Empty group in the manner `how`.

    `how` is text such as `with a change`; `warning` is added to the instruction.
    """
    return f"start all members {how}{f'; {warning}' if warning else ''}"
