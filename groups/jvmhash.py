"""Hash codes and sort keys of Java and Scala, from which Kafka's hash tables get their order.

Hash codes are unsigned 32-bit numbers here. Java and Scala use the same 32 bits as signed numbers.
"""

from functools import lru_cache


@lru_cache(maxsize=2**16)
def string_hash(text: str) -> int:
    """Return `String.hashCode()` (over UTF-16 units) as an unsigned 32-bit number.

    The last results are cached, because each member asks for the hashes of the same topics.
    """
    value = 0
    if text.isascii():
        for byte in text.encode("ascii"):
            value = (31 * value + byte) & 0xFFFFFFFF
        return value
    units = utf16(text)
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value


def partition_hash(topic_hash: int, partition: int) -> int:
    """Return `TopicPartition.hashCode()` as an unsigned 32-bit number."""
    return (31 * (31 + partition) + topic_hash) & 0xFFFFFFFF


def utf16(text: str) -> bytes:
    """Return the UTF-16 code units of `text`: a sort key with the order of `String.compareTo`.

    It sorts U+1F600 before U+FFFF, unlike Python's own order.
    """
    return text.encode("utf-16-be", "surrogatepass")


def scala_improved(value: int) -> int:
    """Return Scala's `scala.collection.Hashing.improve` of an unsigned 32-bit hash code."""
    value = (value + (~(value << 9) & 0xFFFFFFFF)) & 0xFFFFFFFF
    value ^= value >> 14
    value = (value + (value << 4)) & 0xFFFFFFFF
    return value ^ value >> 10
