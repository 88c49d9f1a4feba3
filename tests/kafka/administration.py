"""`Administration`: what the tests do by admin calls on a broker, or on a cluster of them."""

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer
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
from tests.kafka.processes import ChildProcess, wait_for


class Administration:
    """Topics, records, ACLs, users and groups of one bootstrap address, as a super user.

    `replicas` is the replication factor of the topics that it creates.
    """

    replicas = 1
    _admin: AdminClient | None = None
    _describer: KafkaAdminClient | None = None

    @property
    def bootstrap(self) -> str:
        """The PLAINTEXT address of the broker, or of all brokers."""
        raise NotImplementedError

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

        wait_for(f"topic {name}", known, timeout=20, involved=lambda: self.processes)
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
        wait_for(
            f"the rights of {user}",
            lambda: set(bindings) <= set(self.admin().describe_acls(_acls_of(user)).result(20)),
            timeout=20,
            involved=lambda: self.processes,
        )

    def forbid(self, user: str) -> None:
        """Take back every right that `allow` gave `User:<user>`."""
        for future in self.admin().delete_acls([_acls_of(user)]).values():
            future.result(20)
        wait_for(
            f"no right of {user}",
            lambda: not self.admin().describe_acls(_acls_of(user)).result(20),
            timeout=20,
            involved=lambda: self.processes,
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

    def wait_coordinator(self, group: str, timeout: float = 30) -> None:
        """Wait until the coordinator answers: on a new broker its topic is not there yet."""

        def answers() -> bool:
            described = self.admin().describe_consumer_groups([group], request_timeout=10)
            try:
                described[group].result(15)
            except KafkaException as error:
                return error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
            return True

        wait_for("a coordinator", answers, timeout=timeout, involved=lambda: self.processes)

    def wait_stable(self, group: str, members: int, timeout: float = 30) -> None:
        """Wait until the broker itself says: `group` is Stable and has so many members."""
        seen = "nothing yet"

        def stable() -> bool:
            nonlocal seen
            try:
                described = self.admin().describe_consumer_groups([group], request_timeout=10)
                answer = described[group].result(15)
            except KafkaException as error:
                seen = str(error)
                # A loading coordinator and a group that does not exist yet are normal here.
                if error.args[0].code() in _SOON:
                    return False
                raise
            seen = f"{answer.state}, {len(answer.members)} members"
            return answer.state == ConsumerGroupState.STABLE and len(answer.members) == members

        try:
            wait_for(f"{group} to be Stable with {members}", stable, timeout=timeout, every=0.1)
        except AssertionError as late:
            tails = "\n".join(process.tail() for process in self.processes)
            raise type(late)(f"{late}\nlast answer: {seen}\n{tails}") from late


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


_SOON = {
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}
