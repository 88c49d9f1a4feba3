"""Kinds of actions and of paths, with the properties that other modules ask for."""

from enum import StrEnum


class Action(StrEnum):
    """Action that one piece of advice asks of the operator.

    restart: stop the first of the members cleanly, then start it (the threads of one process, which
    has one name, together); start: members that are not in
    the group; temporary: one more member joins, and leaves when the group is Stable; cut-over: all
    members stop before one starts; evidence: add what decides an open answer; confirm: check by
    hand what no evidence shows; stop: restart nothing.
    """

    RESTART = "restart"
    START = "start"
    TEMPORARY = "temporary"
    CUT_OVER = "cut-over"
    WAIT = "wait"
    EVIDENCE = "evidence"
    CONFIRM = "confirm"
    REPLAN = "replan"
    STOP = "stop"
    NONE = "none"

    @property
    def joins(self) -> bool:
        """Return whether a member joins the group, so that the admission check decides."""
        return self in (Action.RESTART, Action.START, Action.TEMPORARY, Action.CUT_OVER)


class PathKind(StrEnum):
    """The path of a plan, as its document names it; a module of planner/paths makes each."""

    NONE = "none"
    FINISHED = "finished"
    ALREADY_INCREMENTAL = "already_incremental"
    TWO_BOUNCES = "two_bounces"
    ONE_BOUNCE = "one_bounce"
    MIXED_FAMILIES = "mixed_families"
    CUT_OVER = "cut_over"
    START = "start"
    STREAMS_ONE_BOUNCE = "streams_one_bounce"
    STREAMS_TWO_BOUNCES = "streams_two_bounces"
    STREAMS_DOWN = "streams_down"
    STREAMS_BACK = "streams_back"
    STREAMS_START = "streams_start"
    CONNECT = "connect"
    CONNECT_DOWN = "connect_down"
    CONNECT_START = "connect_start"
    KIP848_ONLINE = "kip848_online"
    KIP848_OFFLINE = "kip848_offline"
    KIP848_BACK = "kip848_back"
    KIP848_BACK_OFFLINE = "kip848_back_offline"
    KIP1071 = "kip1071"
    KIP1071_BACK = "kip1071_back"
    LIBRARY = "library"
    LIBRARY_STOP = "library_stop"

    @property
    def stops_the_group(self) -> bool:
        """Return whether the path stops every running member before one starts."""
        return self in (
            PathKind.CUT_OVER,
            PathKind.CONNECT_DOWN,
            PathKind.KIP848_OFFLINE,
            PathKind.KIP848_BACK_OFFLINE,
            PathKind.KIP1071,
            PathKind.KIP1071_BACK,
            PathKind.LIBRARY_STOP,
        )

    @property
    def reads_lists(self) -> bool:
        """Return whether a step of the path needs every member's assignor list."""
        return self in (
            PathKind.TWO_BOUNCES,
            PathKind.ONE_BOUNCE,
            PathKind.MIXED_FAMILIES,
            PathKind.LIBRARY,
        )

    @property
    def of_streams(self) -> bool:
        """Return whether the members are Kafka Streams programs on the classic protocol."""
        return self.value.startswith("streams_")

    @property
    def label(self) -> str:
        """Return the path in a plan's summary: `two bounces`, `to KIP-848, online`."""
        return _TITLES.get(self, "")


_TITLES = {
    PathKind.TWO_BOUNCES: "two bounces",
    PathKind.ONE_BOUNCE: "one bounce",
    PathKind.MIXED_FAMILIES: "two bounces, with a stop of some clients in between",
    PathKind.CUT_OVER: "full cut-over",
    PathKind.START: "back to what the members ran",
    PathKind.STREAMS_ONE_BOUNCE: "Streams, one bounce",
    PathKind.STREAMS_TWO_BOUNCES: "Streams, two bounces",
    PathKind.STREAMS_DOWN: "Streams, down by upgrade.from",
    PathKind.STREAMS_BACK: "Streams, back to the old version",
    PathKind.STREAMS_START: "back to what the members ran",
    PathKind.CONNECT: "Connect workers, one bounce",
    PathKind.CONNECT_DOWN: "Connect workers, all stopped once",
    PathKind.CONNECT_START: "back to what the members ran",
    PathKind.KIP848_ONLINE: "to KIP-848, online",
    PathKind.KIP848_OFFLINE: "to KIP-848, over a stop",
    PathKind.KIP848_BACK: "back from KIP-848, online",
    PathKind.KIP848_BACK_OFFLINE: "back from KIP-848, over a stop",
    PathKind.KIP1071: "to the streams protocol, over a stop",
    PathKind.KIP1071_BACK: "back from the streams protocol, over a stop",
    PathKind.LIBRARY: "another client library, one by one",
    PathKind.LIBRARY_STOP: "another client library, over a stop",
}
