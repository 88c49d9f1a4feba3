"""A roll-out that is watched through a tunnel that drops and with logins that expire.

Blind is never an answer: the watch says since when, the journal keeps it, and what happened
meanwhile is seen by the first look that comes through again.
"""

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

from rebal.cli import app
from rebal.cli.journal import journal_path
from rebal.inspectors.connection import auth
from tests.kafka import jars
from tests.kafka.broker import Broker, free_ports, wait_for
from tests.kafka.members import Members, Rolling
from tests.kafka.tunnel import Issuer, Tunnel

OLD = ["range"]
MIXED = ["cooperative-sticky", "range"]
BLIND = re.compile(r"blind since (\d\d:\d\d:\d\dZ): (.*)")


@pytest.fixture(scope="module")
def tunnel() -> Iterator[Tunnel]:
    (port,) = free_ports(1)
    with Tunnel(port) as made:
        yield made


@pytest.fixture(scope="module")
def broker(tunnel: Tunnel) -> Iterator[Broker]:
    """Behind the tunnel; on its SASL listener no login is good for more than two seconds."""
    settings = {"connections.max.reauth.ms": "2000"}
    with Broker(jars.EARLY, settings=settings, tunnel=tunnel.port) as made:
        tunnel.target = made.ports["TUNNEL"]
        yield made


class Rollout(Rolling):
    """Two Java members on [range], a plan of them, and a watch that looks at what is done to them.

    The members and the plan are on a listener that nothing happens to.
    """

    def __init__(
        self, broker: Broker, members: Members, group: str, topic: str, folder: Path
    ) -> None:
        broker.wait_coordinator(group)
        super().__init__(broker, members, group, topic, partitions=4, software="java-2.8.2")
        self.plan = folder / "plan.yaml"
        self.darkened = self.blind_since = ""
        self._said = folder / "watch.txt"
        self.begin(["app-0", "app-1"], OLD)
        words = ["plan-upgrade", group, "--expect-members", "2", "--out", str(self.plan)]
        assert app.run([*words, "-b", broker.bootstrap]) == 0

    @contextmanager
    def watch(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """`rebal verify --watch`, as a user has it running beside the roll-out."""
        command = [
            str(Path(sys.executable).with_name("rebal")), "verify", str(self.plan), *words,
            "--watch", "--every", "0.5", "--timeout", "2", "--for", "180s",
        ]  # fmt: skip
        with (
            self._said.open("w") as out,
            subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as watching,
        ):
            try:
                yield watching
            finally:
                watching.kill()

    def said(self) -> str:
        return self._said.read_text()

    def hear(self, text: str) -> None:
        wait_for(repr(text), lambda: text in self.said(), timeout=60, every=0.1)

    def journal(self) -> list[dict[str, Any]]:
        lines = journal_path(self.plan).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def through(
        self, words: list[str], darken: Callable[[], object], lighten: Callable[[], object]
    ) -> str:
        """The whole story: one restart seen, one while blind, and sight again; why it was blind."""
        with self.watch(*words) as watching:
            self.hear("not yet, 0 of 2 done")
            self.restart("app-0", MIXED)
            self.hear("app-0 is back with a new member id")
            darken()
            self.darkened = f"{datetime.now(UTC):%H:%M:%SZ}"
            self.hear("blind since")
            # From here on the gate would hold, if anybody could see it.
            self.restart("app-1", MIXED)
            time.sleep(2)
            assert watching.poll() is None, self.said()
            lighten()
            code = watching.wait(40)
        said = self.said()
        assert code == 0, said
        before, after = re.split(r"\S+ sees again, after having been blind since ", said)
        assert "gate holds" not in before
        assert "blind since" in before.splitlines()[-1], said
        assert "app-1 is back with a new member id: done" in after, said
        assert after.splitlines()[-1].endswith("gate holds, 2 of 2 done"), said
        ((self.blind_since, why),) = BLIND.findall(before)
        looks = self.journal()
        blind = [number for number, look in enumerate(looks) if look.get("blind")]
        assert [looks[number]["blind"] for number in blind] == [why]
        assert all(look.get("gate") != "yes" for look in looks[: blind[0] + 1])
        assert looks[-1]["gate"] == "yes"
        assert len(looks[-1]["members"]) == 2
        assert self.errors() == {}
        return str(why)


@pytest.fixture
def rollout(
    broker: Broker, members: Members, group_id: str, topic_name: str, tmp_path: Path
) -> Rollout:
    return Rollout(broker, members, group_id, topic_name, tmp_path)


@pytest.fixture(autouse=True)
def _mended(tunnel: Tunnel) -> Iterator[None]:
    """Whatever a test did to the tunnel, it is whole for the next one."""
    yield
    tunnel.mend()


@pytest.mark.parametrize("fault", ["cut", "hush"])
def test_watch_survives_a_broken_network_path(rollout: Rollout, tunnel: Tunnel, fault: str) -> None:
    address = f"127.0.0.1:{tunnel.port}"
    why = rollout.through(["-b", address, "--probe"], getattr(tunnel, fault), tunnel.mend)
    # The silence may begin between two looks or within one.
    reason = {"cut": "connection refused", "hush": "no answer|did not answer"}[fault]
    assert address in why
    assert re.search(reason, why)
    # Since it saw nothing any more: also where a time-out was needed to notice.
    assert rollout.blind_since <= rollout.darkened


def test_watch_is_blind_while_its_login_is_deleted_and_recovers_afterwards(
    broker: Broker, rollout: Rollout, tmp_path: Path
) -> None:
    broker.set_scram_user("watcher", "first-s3cret")
    broker.allow("watcher", "group", rollout.group, "READ", "DESCRIBE")
    broker.allow("watcher", "topic", rollout.topic, "DESCRIBE")
    settings = tmp_path / "watcher.properties"

    def write(password: str) -> None:
        found = broker.client_properties("SCRAM-SHA-256", "watcher", password)
        settings.write_text("".join(f"{key}={value}\n" for key, value in found.items()))

    def expire() -> None:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            deletion = UserScramCredentialDeletion("watcher", mechanism)
            broker.admin().alter_user_scram_credentials([deletion])["watcher"].result(20)

    def renew() -> None:
        # As a secret that is rotated: the file is read again at each look.
        broker.set_scram_user("watcher", "second-s3cret")
        write("second-s3cret")

    write("first-s3cret")
    try:
        why = rollout.through(["--command-config", str(settings)], expire, renew)
    finally:
        broker.forbid("watcher")
    assert "rejected the login with SCRAM-SHA-256" in why
    assert "s3cret" not in rollout.said()
    assert "s3cret" not in json.dumps(rollout.journal())


def oauth_words(broker: Broker, url: str, *more: str) -> list[str]:
    settings = [
        f"bootstrap.servers={broker.bootstrap_sasl}",
        "security.protocol=SASL_SSL",
        f"ssl.ca.location={broker.certificates.ca}",
        "sasl.mechanism=OAUTHBEARER",
        f"sasl.oauthbearer.token.endpoint.url={url}",
        *more,
    ]
    return [word for setting in settings for word in ("-X", setting)]


CLIENT = ("sasl.oauthbearer.client.id=me", "sasl.oauthbearer.client.secret=client-s3cret")


def test_watch_renews_expiring_tokens_and_is_blind_while_the_issuer_gives_none(
    broker: Broker, rollout: Rollout
) -> None:
    with Issuer(5, sub="admin") as issuer:

        def dry_up() -> None:
            wait_for("a token renewed in time", lambda: len(issuer.asked) > 1, timeout=20)
            issuer.status = 401

        why = rollout.through(
            ["--probe", *oauth_words(broker, issuer.url, *CLIENT)],
            dry_up,
            lambda: setattr(issuer, "status", 200),
        )
    assert why.endswith(
        f"the token endpoint ({auth.URL}) rejected {auth.CLIENT} or its secret "
        "(401: invalid_client)."
    )
    login = base64.b64encode(b"me:client-s3cret").decode()
    expected = {"grant_type": "client_credentials", "authorization": f"Basic {login}"}
    assert all(asked == expected for asked in issuer.asked)
    assert "s3cret" not in rollout.said() + json.dumps(rollout.journal())


def test_a_token_rejected_by_the_broker_is_reported_and_a_valid_one_is_accepted(
    broker: Broker, rollout: Rollout, capfd: pytest.CaptureFixture[str]
) -> None:
    with Issuer(60, nobody="here") as issuer:
        words = oauth_words(broker, issuer.url, *CLIENT, "sasl.oauthbearer.scope=kafka")
        assert app.run(["verify", str(rollout.plan), *words]) == 1
        assert (
            f"{broker.bootstrap_sasl} rejected the token of OAUTHBEARER" in capfd.readouterr().err
        )
        issuer.claims = {"sub": "admin"}
        assert app.run(["inspect", rollout.group, "--probe", "-o", "json", *words]) == 0
        assert {asked["scope"] for asked in issuer.asked} == {"kafka"}
        shown = json.loads(capfd.readouterr().out)
        assert app.run(["doctor", rollout.group, "-o", "json", *words]) == 0
        doctor = json.loads(capfd.readouterr().out)
    (group,) = shown["groups"]
    assert group["notes"] == []
    assert group["probe"]["refused"] is None
    assert (doctor["rows"][0]["source"], doctor["rows"][0]["available"]) == ("login", "yes")
