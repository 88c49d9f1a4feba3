"""The logs that real members print, of every Java version, against what the broker says."""

import pytest

from rebal.groups.evidence.observations import Joined, Left, Ran, Refused
from rebal.groups.model import RebalanceProtocol
from rebal.inspectors.logs.client.reader import read_client_logs
from tests.kafka import jars
from tests.kafka.members import wait_assigned
from tests.kafka.processes import wait_for
from tests.kafka.streams import StreamsHost

VERSIONS = (*jars.CLIENT_VERSIONS, *jars.NAMELESS_CLIENT_VERSIONS)
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def _cooperative(version):
    return "roundrobin" if version == "2.3.1" else "cooperative-sticky"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_members_log_gives_its_list_by_member_id_and_its_rejection(
    version, kafka41, members, group_id, topic_name
):
    topic = kafka41.create_topic(topic_name, 4)
    lists = {"one": (_cooperative(version), "range"), "two": ("range", _cooperative(version))}

    def start(client_id, names):
        options = {"own": True, "topics": [topic], "assignors": names}
        return members.start(f"java-{version}", kafka41, client_id, group_id, **options)

    started = {client_id: start(client_id, names) for client_id, names in lists.items()}
    wait_assigned(list(started.values()), 4)
    kafka41.wait_stable(group_id, 2)
    described = kafka41.admin().describe_consumer_groups([group_id])[group_id].result(10)
    by_client = {member.client_id: member.member_id for member in described.members}
    reading = read_client_logs([member.host.log_path for member in started.values()])
    joins = [o for o in reading.observations if isinstance(o, Joined) and o.group_id == group_id]
    last = {o.client_id: o for o in joins}
    if version == "2.3.1":
        # No leader's line names its members either.
        assert joins == []
        assert len(reading.notes) == 2
    else:
        assert {client_id: o.list for client_id, o in last.items()} == lists
        assert {o.software.version for o in joins} == {version}
        assert {client_id: o.member_id for client_id, o in last.items()} == by_client
        assert reading.notes == ()
    refused = start("refused", ("sticky",))
    refused.wait_for("error")
    seen = read_client_logs([refused.host.log_path]).observations
    told = [o for o in seen if isinstance(o, Refused)]
    assert {(o.group_id, o.client_id, o.list, o.software.version) for o in told} == {
        (group_id, "refused", ("sticky",), version)
    }
    started["one"].stop()
    left = read_client_logs([started["one"].host.log_path]).observations
    assert by_client["one"] in {o.member_id for o in left if isinstance(o, Left)}


def test_a_consumer_of_kip_848_that_the_broker_rejects_says_so(
    kafka41, members, group_id, topic_name
):
    topic = kafka41.create_topic(topic_name, 1)
    rejected = members.start(
        "java-4.1.1",
        kafka41,
        "k",
        group_id,
        own=True,
        topics=[topic],
        protocol="consumer",
        settings={"group.remote.assignor": "none-such"},
    )
    rejected.wait_for("error")
    seen = read_client_logs([rejected.host.log_path]).observations
    (one,) = [o for o in seen if isinstance(o, Refused)]
    assert (one.group_id, one.client_id, one.error) == (group_id, "k", "UNSUPPORTED_ASSIGNOR")


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        (jars.SCALA, ("2.3", "3.3", "")),
        pytest.param(jars.EARLY, ("3.3", ""), marks=pytest.mark.full),
    ],
)
def test_a_streams_programs_log_gives_its_upgrade_from_by_member_id(
    kafka41, group_id, topic_name, *, tmp_path, version, settings
):
    """Several programs of one process, in one log."""
    topic = kafka41.create_topic(topic_name, 2)
    host = StreamsHost(version, tmp_path)
    found = {}
    try:
        for number, value in enumerate(settings):
            group = f"{group_id}-{number}"
            more = {"upgrade.from": value} if value else {}
            host.launch(kafka41, f"app-{number}", group, [topic], more)
            kafka41.wait_stable(group, 1)
            joined = f"groupId={group}] Successfully joined"
            wait_for("a join in the log", lambda text=joined: text in host.log(), timeout=20)
            described = kafka41.admin().describe_consumer_groups([group])[group].result(10)
            found[described.members[0].member_id] = value
        reading = read_client_logs([host.log_path])
    finally:
        host.close()
    ran = {o.member_id: o for o in reading.observations if isinstance(o, Ran)}
    assert {member_id: one.upgrade_from for member_id, one in ran.items()} == found
    for member_id, value in found.items():
        assert ran[member_id].value is (EAGER if value == "2.3" else COOPERATIVE)
