"""Configuration files for the inventory: the ones in tests/data, and those a test writes."""

from pathlib import Path

from rebal.groups.evidence.observations import Declared
from rebal.inspectors.inventory.reader import read_inventory

FILES = Path(__file__).parents[1] / "data/inventory"
BOTH = ("cooperative-sticky", "range")
JAVA = "org.apache.kafka.clients.consumer."


def one(path: Path) -> tuple[Declared, tuple[str, ...]]:
    """The one consumer that is declared there, and the notes."""
    reading = read_inventory(path)
    (declared,) = reading.declared
    return declared, reading.notes


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
