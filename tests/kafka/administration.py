"""`Administration`: what the tests do by admin calls on a broker, or on a cluster of them."""

from collections.abc import Callable
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as AnswerError
from tests.kafka import brokerconf
from tests.kafka.processes import ChildProcess, HarnessTimeoutError, wait_for


class Administration:
    """Topics, records, ACLs, users and groups of one bootstrap address, as a super user.

    `replicas` is the replication factor of the topics that it creates.
    """

    version: str
    replicas = 1
    _admin: AdminClient | None = None
    _describer: KafkaAdminClient | None = None

    def start(self) -> None:
        """Start, and wait until all brokers serve."""
        raise NotImplementedError

    def close(self) -> None:
        """End all brokers without ceremony and remove their files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The PLAINTEXT address of the broker, or of all brokers."""
        raise NotImplementedError

    @property
    def is_scala_coordinator(self) -> bool:
        """Before 4.0 the classic (Scala) group coordinator serves, since then the Java one."""
        return brokerconf.is_scala_coordinator(self.version)

    @property
    def processes(self) -> list[ChildProcess]:
        """The broker processes, whose logs an error shows."""
        raise NotImplementedError

    def admin(self) -> AdminClient:
        """confluent-kafka's admin client on PLAINTEXT (a super user)."""
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.bootstrap, "client.id": "harness", "log_level": 0}
            )
        return self._admin

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic, wait until it is known, and give its name back."""
        futures = self.admin().create_topics([NewTopic(name, partitions, self.replicas)])
        futures[name].result(20)

        def known() -> bool:
            topic = self.admin().list_topics(name, timeout=10).topics[name]
            leaders = [part.leader for part in topic.partitions.values()]
            return len(leaders) == partitions and min(leaders) >= 0

        self._wait(f"topic {name}", known)
        return name

    def produce(self, topic: str, counts: dict[int, int]) -> None:
        """Write `counts[partition]` small records to each partition of `topic`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for partition, count in counts.items():
            for number in range(count):
                producer.produce(topic, value=str(number).encode(), partition=partition)
        left = producer.flush(20)
        assert left == 0, f"{left} records of {topic} were not written"

    def allow(self, user: str, resource: str, name: str, *operations: str) -> None:
        """ACLs for `User:<user>`: `resource` is topic, group or cluster (name: kafka-cluster).

        Operations in the tools' spelling: READ, DESCRIBE, DESCRIBE_CONFIGS… Returns when the
        authorizer knows them.
        """
        kind = "BROKER" if resource == "cluster" else resource.upper()
        bindings = [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in self.admin().create_acls(bindings).values():
            future.result(20)
        self._wait(
            f"the rights of {user}",
            lambda: set(bindings) <= set(self.admin().describe_acls(_acls_of(user)).result(20)),
        )

    def forbid(self, user: str) -> None:
        """Take back every right that `allow` gave `User:<user>`."""
        for future in self.admin().delete_acls([_acls_of(user)]).values():
            future.result(20)
        self._wait(
            f"no right of {user}",
            lambda: not self.admin().describe_acls(_acls_of(user)).result(20),
        )

    def set_scram_user(self, user: str, password: str) -> None:
        """Create or change one user of both SCRAM mechanisms (PLAIN is fixed at the start)."""
        # Kafka refuses two changes of one user in one request.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            self.admin().alter_user_scram_credentials([change])[user].result(20)

    def described(self, group: str) -> tuple[str, list[str]]:
        """A classic group's state and its members' client ids; "" where nobody can answer now.

        By kafka-python: librdkafka aborts the whole process where the coordinator goes away while
        it describes a group (confluentinc/librdkafka#4605).
        """
        try:
            if self._describer is None:
                self._describer = KafkaAdminClient(
                    bootstrap_servers=self._alive_bootstrap(),
                    client_id="harness",
                    request_timeout_ms=5000,
                )
            answer = self._describer.describe_groups([group])[group]
        except AnswerError:
            self._forget()
            return "", []
        if answer["error"] and "GroupIdNotFound" not in answer["error"]:
            # It goes on asking the coordinator of before.
            self._forget()
            return "", []
        return answer["group_state"], [each["client_id"] for each in answer["members"]]

    def _forget(self) -> None:
        """Ask anew: a client of before a change may wait long, or ask who is no longer there."""
        self._admin = None
        describer, self._describer = self._describer, None
        if describer is not None:
            describer.close()

    def _alive_bootstrap(self) -> str:
        """The address of who can answer now."""
        return self.bootstrap

    def standing(self, group: str) -> tuple[str, int]:
        """A group's state and its number of members; "" where nobody can answer now."""
        described = self.admin().describe_consumer_groups([group], request_timeout=10)
        try:
            answer = described[group].result(15)
        except KafkaException as error:
            return "DEAD" if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND else "", 0
        return answer.state.name, len(answer.members)

    def wait_coordinator(self, group: str, timeout: float = 30) -> None:
        """Wait until the coordinator answers: on a new broker its topic is not there yet."""
        self._wait(f"a coordinator of {group}", lambda: self.standing(group)[0], timeout=timeout)

    def wait_stable(self, group: str, members: int, timeout: float = 30) -> None:
        """Wait until the coordinator itself says: Stable, with so many members."""
        wanted = ("STABLE", members)
        what = f"{group} to be {wanted}"
        try:
            self._wait(what, lambda: self.standing(group) == wanted, timeout=timeout, every=0.1)
        except HarnessTimeoutError as late:
            raise HarnessTimeoutError(f"{late}\nit is {self.standing(group)}") from late

    def _wait(
        self, what: str, ready: Callable[[], object], *, timeout: float = 20, every: float = 0.05
    ) -> None:
        wait_for(what, ready, timeout=timeout, every=every, involved=lambda: self.processes)


def _acls_of(user: str) -> AclBindingFilter:
    """Return a filter of all ACLs of `User:<user>`."""
    return AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
