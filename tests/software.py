"""The clients of captured stories: truth.json's names of them, and how they name themselves."""

FAMILY = {
    "kafka-clients": "java",
    "kafka-streams": "streams",
    "kafka-connect": "connect",
    "confluent-kafka": "librdkafka",
    "kafka-go": "segmentio",
}
"""By the first word of `software`; any other word is its family's own name."""
JAVA = {"java", "streams", "connect"}
"""Families that name themselves as the Java client."""
SILENT = {"aiokafka", "kafkajs", "segmentio"}
"""Families that do not say who they are (kafka-facts: unknown/unknown in the request log)."""


def family(software: str) -> str:
    """The family of a `software` of truth.json."""
    word = software.split(maxsplit=1)[0]
    return FAMILY.get(word, word)


def names_itself(family: str, version: str) -> bool:
    """Does this client say what it is (KIP-511; Java's since 2.4, kafka-python since 3.0)."""
    oldest = {**dict.fromkeys(JAVA, (2, 4)), "kafka-python": (3, 0)}.get(family, (0, 0))
    return family not in SILENT and tuple(map(int, version.split(".")[:2])) >= oldest
