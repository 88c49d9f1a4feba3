"""What happens to a group between the looks of a history: `Eventful`, a story with these events."""

from random import Random
from typing import Any

from tests.live.obey import FINAL, RANGE, Process, Story, is_eager
from tests.search.histories import ROUND_ROBIN, Event, History
from tests.search.world import SimulatedWorld

_WRONG = (
    ("range",), ("cooperative-sticky",), ("roundrobin",), ("cooperative-sticky", "range"),
    ("range", "cooperative-sticky"), ("sticky",),
)  # fmt: skip


class Eventful(Story):
    """An obeying story whose events are a history's."""

    world: SimulatedWorld

    def __init__(self, world: SimulatedWorld, history: History) -> None:
        super().__init__(world, Random(history.seed))
        self.counted = history.counted
        self._left = list(history.events)
        self._deployed: tuple[str, ...] | None = None

    def _happen(self, look: int) -> None:
        while self._left and self._left[0].look <= look:
            event = self._left.pop(0)
            self.rng = Random(event.pick)
            self._one(event)
            if event.pick % 2:
                self._settled(required=False)

    def _one(self, event: Event) -> None:
        done: Any = {
            "reload": lambda: self._event(f"coordinator reload ({self.world.reload()})"),
            "crash": self._crash,
            "scale up": self._scale_up,
            "scale down": self._scale_down,
            "roll back": self._roll_back,
            "old image": self._old_image,
            "cut": lambda: self._event(f"logs: {self.world.cut()}"),
            "merge": lambda: self._event(f"logs: {self.world.merge()}"),
            "wrong list": self._wrong_list,
            "leave": self._leave,
            "rejected pod": self._rejected_pod,
            "topic grows": lambda: self._event(self.world.grow()),
        }[event.kind]
        done()

    def _comes_back(self) -> None:
        now = self.world.now()
        for process in self.world.processes:
            if process.due is not None and process.due <= now and not process.running:
                process.due = None
                process.assignors = self.world.filed.get(process.name, process.assignors)
                self._came(process, "comes back")

    def _came(self, process: Process, how: str, *, filed: bool = True) -> None:
        """Start it; with KIP-848 a supervisor tries again until its old entry is released."""
        if filed:
            self.world.filed.pop(process.name, None)
        super()._came(process, how)
        if self.world.history.kip848 and not process.running:
            process.due = self.world.now() + 20

    def _crash(self) -> None:
        victims = self._running()
        if len(victims) < 2:
            return
        victim = self.rng.choice(victims)
        self.world.crash(victim)
        victim.running = False
        delay = self.rng.choice([0.2, 2.0, self.world.session_seconds + 3])
        victim.due = self.world.now() + delay
        self._event(f"{victim.name} crashed, back in {delay:g} s")

    def _leave(self) -> None:
        running = self._running()
        if len(running) < 2:
            return
        one = self.rng.choice(running)
        self.world.stop(one)
        one.running = False
        one.due = self.world.now() + self.rng.choice((3.0, 100.0))
        self._event(f"{one.name} is stopped for a while")

    def _scale_down(self) -> str | None:
        told = super()._scale_down()
        self.counted = self.counted or told is not None
        return told

    def _scale_up(self) -> None:
        pattern = self.rng.choice(self._service())
        world = self.world
        said = [world.protocols[one.name] for one in self._service()]
        newest = next((one for one in said if one != world.begun), world.begun)
        self._joiner("more", pattern.software, self._deployed or pattern.assignors, newest)

    def _old_image(self) -> None:
        pattern = self.rng.choice(self._service())
        self._joiner("old", pattern.software, pattern.first, self.world.begun)

    def _joiner(self, label: str, software: str, lists: tuple[str, ...], protocol: str) -> None:
        """Let one more process join, of the image that is rolled out or of the old one."""
        self.world.joining = protocol
        self._serial += 1
        made = Process(f"{label}-{self._serial}", software, lists)
        if not made.mixes and len({is_eager(name) for name in lists}) == 2:
            return
        self.world.processes.append(made)
        self._event(f"{made.name} joins with {list(lists)}")
        self._came(made, "joins")
        # A new one that is rejected is taken back: it was never part of the service.
        made.retired = not made.running

    def _roll_back(self) -> None:
        """Somebody restarts a member that was changed with what it began with."""
        begun, protocols = self.world.begun, self.world.protocols
        online = self.world.history.kip848
        changed = [
            one
            for one in self._running()
            if (protocols[one.name] != begun if online else one.assignors != one.first)
        ]
        if not changed:
            return
        one = self.rng.choice(changed)
        self.world.stop(one)
        one.running, one.assignors = False, one.first
        if online:
            protocols[one.name] = begun
        to = f"group.protocol={begun}" if online else list(one.first)
        self._event(f"{one.name} is rolled back to {to}")
        self._came(one, "is rolled back")

    def _wrong_list(self) -> None:
        """Somebody restarts a member with a list of their own."""
        running = self._running()
        if not running:
            return
        one = self.rng.choice(running)
        names = self.rng.choice(_WRONG)
        if not one.mixes and len({is_eager(name) for name in names}) == 2:
            return
        self.world.stop(one)
        one.running, one.assignors = False, names
        self._event(f"{one.name} is restarted with {list(names)}")
        self._came(one, "is restarted")
        if not one.running:
            # A crash back-off: its supervisor starts it again later, with what it ran first.
            one.assignors, one.due = one.first, self.world.now() + 30

    def _rejected_pod(self) -> None:
        """A new pod of the service is rejected at its first start, and stays out."""
        running = self._running()
        if not running:
            return
        pattern = self.rng.choice(running)
        lists = [
            names
            for names in (FINAL, RANGE, ROUND_ROBIN)
            if not all({*names} & {*one.assignors} for one in running)
        ]
        if not lists:
            return
        self._serial += 1
        pod = Process(f"pod-{self._serial}", pattern.software, self.rng.choice(lists))
        self._event(f"{pod.name} is a new pod with {list(pod.assignors)}")
        self.world.processes.append(pod)
        self._came(pod, "starts")
