"""Short words for a simulation, shared by its two views."""

from __future__ import annotations

from rich.text import Text

from rebal.planner.rehearsal.whatif.simulation import Simulation


def range_text(low: int, high: int) -> str:
    """`4–8`: the fewest and the most."""
    return f"{low:,}–{high:,}"


def apart(simulation: Simulation, *, then: bool) -> int:
    """Over all topics, the most by which two of a topic's subscribers differ in it."""
    spreads = [topic.balance for topic in simulation.topics]
    if then:
        return max((one.then_max - one.then_min for one in spreads), default=0)
    return max((one.now_max - one.now_min for one in spreads), default=0)


def verdict(simulation: Simulation) -> Text:
    """What is wrong with it, in a word or two; empty when nothing is."""
    if simulation.violations:
        return Text("breaks its contract", "bold red")
    if not simulation.stable:
        return Text("not at rest", "yellow")
    if simulation.leader is not None and simulation.leader.near_timeout:
        return Text("slow leader", "yellow")
    return Text("")
