"""Groups of Connect workers with something to run: `workers`."""

from rebal.groups.assignors.connect import (
    ConnectRound,
    Item,
    Memory,
    after,
    eager,
    incremental,
    running_of,
)
from rebal.groups.evidence.merge import merge
from rebal.groups.model import (
    Coordinator,
    CoordinatorKind,
    Evidence,
    GroupSnapshot,
    Member,
    Source,
    Timeouts,
    WorkerState,
)
from tests.groups.observed import stable_group
from tests.planner.builder import AT

IDS = tuple(f"w{n}-{n}" for n in range(3))
WORK: frozenset[Item] = frozenset((f"c{c}", t) for c in range(3) for t in range(-1, 4))


def workers(elected: str, held_back_ms: int | None = None, leader: int = 0) -> GroupSnapshot:
    """Three workers with three connectors of four tasks: five to run on each."""
    if elected == "default":
        held = eager(IDS, WORK)
    else:
        given, _ = incremental(
            ConnectRound(
                workers=dict.fromkeys(IDS, ()),
                configured=WORK,
                generation=4,
                last_generation=-1,
                now_ms=1,
                max_delay_ms=0,
            ),
            Memory(),
        )
        held = {worker: after((), one) for worker, one in given.items()}
    seen = Evidence(source=Source.CLIENT_LOG, at=AT)
    timeouts = None
    if held_back_ms is not None:
        timeouts = Timeouts(
            session_ms=10_000, rebalance_ms=60_000, held_back_ms=held_back_ms, evidence=(seen,)
        )
    snapshot = stable_group(
        *(
            Member(
                member_id=id_,
                client_id=id_[:2],
                timeouts=timeouts,
                worker=WorkerState(
                    url=f"http://{id_}:8083/", running=running_of(held[id_]), leader=n == leader
                ),
            )
            for n, id_ in enumerate(IDS)
        ),
        group_id="workers",
        protocol_type="connect",
        assignor=elected,
        generation=4,
        coordinator=Coordinator(broker_id=1, kind=CoordinatorKind.JAVA),
        captured_at=AT,
    )
    return merge(snapshot, ())
