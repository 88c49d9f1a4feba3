"""The iteration order of `java.util.HashMap` and `HashSet`, which the leader's results depend on.

A table has 16, 32, … slots. The spread hash of a key decides its slot, a slot holds its keys in the
order of insertion, and iteration walks the slots. The table doubles when it is three quarters full,
or when a slot would get a ninth key while the table has fewer than 64 slots. With more slots, such
a slot becomes a red-black tree (`SlotTree`), whose iteration begins at its root.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from rebal.groups.jvmhash import string_hash, utf16

_K = TypeVar("_K", bound=Hashable)
_LONG_SLOT: Final = 8
_TREES_FROM: Final = 64
_SHRUNK_TREE: Final = 6


class _Node(Generic[_K]):
    __slots__ = ("key", "kids", "order", "parent", "red")

    def __init__(self, key: _K, order: Any, parent: _Node[_K] | None) -> None:
        self.key = key
        self.order = order
        self.parent = parent
        self.red = parent is not None
        self.kids: list[_Node[_K] | None] = [None, None]


class SlotTree(Generic[_K]):
    """The keys of a slot with many keys: a red-black tree with its own order of iteration.

    Iteration does not follow the tree: a new key comes right after its parent, and the root is
    moved to the front after each change. A tree that has too few keys becomes a list again.
    Insertion and deletion rebalance as in Cormen et al., "Introduction to Algorithms", chapter 13.
    The tree compares the `order` values that its keys were added with; no two are equal.
    """

    __slots__ = ("_nodes", "_order", "_root")

    def __init__(self, items: Iterable[tuple[_K, Any]]) -> None:
        self._nodes: dict[_K, _Node[_K]] = {}
        self._root: _Node[_K] | None = None
        self._order: list[_K] = []
        for key, order in items:
            self._put(key, order)
            self._order.append(key)
        self._root_first()

    def __iter__(self) -> Iterator[_K]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def add(self, key: _K, order: Any) -> None:
        """Insert a new key; the tree compares keys by their `order` values."""
        parent = self._put(key, order)
        assert parent is not None
        self._order.insert(self._order.index(parent.key) + 1, key)
        self._root_first()

    def remove(self, key: _K) -> list[_K] | None:
        """Remove a key; return the remaining keys when the slot becomes a plain list, else None."""
        self._order.remove(key)
        root = self._root
        assert root is not None
        left = root.kids[0]
        if root.kids[1] is None or left is None or left.kids[0] is None:
            return self._order
        self._cut(self._nodes.pop(key))
        self._root_first()
        return None

    def _root_first(self) -> None:
        assert self._root is not None
        if self._order[0] != self._root.key:
            self._order.remove(self._root.key)
            self._order.insert(0, self._root.key)

    def _put(self, key: _K, order: Any) -> _Node[_K] | None:
        parent, at = None, self._root
        while at is not None:
            parent, at = at, at.kids[order > at.order]
        node = self._nodes[key] = _Node(key, order, parent)
        if parent is None:
            self._root = node
        else:
            parent.kids[order > parent.order] = node
            self._after_insert(node)
        return parent

    def _rotate(self, top: _Node[_K], side: int) -> None:
        up = top.kids[1 - side]
        assert up is not None
        top.kids[1 - side] = inner = up.kids[side]
        if inner is not None:
            inner.parent = top
        self._replace(top, up)
        up.kids[side] = top
        top.parent = up

    def _replace(self, old: _Node[_K], new: _Node[_K] | None) -> None:
        parent = old.parent
        if parent is None:
            self._root = new
        else:
            parent.kids[parent.kids[1] is old] = new
        if new is not None:
            new.parent = parent

    def _after_insert(self, node: _Node[_K]) -> None:
        while (parent := node.parent) is not None and parent.red:
            grand = parent.parent
            assert grand is not None
            side = int(grand.kids[1] is parent)
            uncle = grand.kids[1 - side]
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                node = grand
                continue
            if parent.kids[1 - side] is node:
                self._rotate(parent, side)
                parent = node
            parent.red = False
            grand.red = True
            self._rotate(grand, 1 - side)
            break
        assert self._root is not None
        self._root.red = False

    def _cut(self, node: _Node[_K]) -> None:
        if node.kids[0] is not None and (heir := node.kids[1]) is not None:
            while heir.kids[0] is not None:
                heir = heir.kids[0]
            # The next larger key takes this node's place and colour; its own node goes instead.
            node.key, node.order = heir.key, heir.order
            self._nodes[node.key] = node
            node = heir
        child = node.kids[0] if node.kids[0] is not None else node.kids[1]
        parent = node.parent
        side = int(parent is not None and parent.kids[1] is node)
        self._replace(node, child)
        if child is not None and not node.red:
            child.red = False
        elif parent is not None and not node.red:
            self._after_delete(parent, side)

    def _after_delete(self, parent: _Node[_K], side: int) -> None:
        """Rebalance the tree after `parent.kids[side]` lost a black node on each of its paths."""
        while True:
            sister = parent.kids[1 - side]
            assert sister is not None
            if sister.red:
                sister.red = False
                parent.red = True
                self._rotate(parent, side)
                sister = parent.kids[1 - side]
                assert sister is not None
            near, far = sister.kids[side], sister.kids[1 - side]
            if not (near is not None and near.red) and not (far is not None and far.red):
                sister.red = True
                above = parent.parent
                if parent.red or above is None:
                    parent.red = False
                    return
                parent, side = above, int(above.kids[1] is parent)
                continue
            if far is None or not far.red:
                assert near is not None
                near.red = False
                sister.red = True
                self._rotate(sister, 1 - side)
                sister, far = near, sister
            sister.red = parent.red
            parent.red = far.red = False
            self._rotate(parent, side)
            return


def hash_order(texts: Iterable[str]) -> list[str]:
    """Return distinct `texts` in the iteration order of a default Java HashMap with these keys."""
    return list(table_of(texts))


def table_of(texts: Iterable[str]) -> HashTable[str]:
    """Return the table of a default Java HashMap with the keys `texts`."""
    table: HashTable[str] = HashTable()
    for text in texts:
        table.add(text, string_hash(text), utf16(text))
    return table


def table_size(keys: int) -> int:
    """Return the slot count of `new HashSet<>(collection)` for `keys` elements, up to Java 18."""
    return 1 << max(4, int(keys / 0.75).bit_length())


class HashTable(Generic[_K]):
    """The keys of a Java HashMap, in its iteration order; it never shrinks, as in Java.

    `size` is the number of slots that it begins with: a power of 2, by default Java's own default.
    `first` costs O(log slots), amortised.
    """

    __slots__ = ("_heap", "_size", "_slots", "_where")

    def __init__(self, size: int = 16) -> None:
        self._size = size
        self._where: dict[_K, tuple[int, Any]] = {}
        self._slots: dict[int, list[_K] | SlotTree[_K]] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[_K]:
        return chain.from_iterable(self._slots[index] for index in sorted(self._slots))

    def slots(self) -> list[list[_K]]:
        """Return the keys in iteration order, one list for each slot that is not empty."""
        return [list(self._slots[index]) for index in sorted(self._slots)]

    def first(self) -> _K:
        """Return the first key of the iteration; the table must not be empty."""
        while self._heap[0] not in self._slots:
            heapq.heappop(self._heap)
        return next(iter(self._slots[self._heap[0]]))

    def add(self, key: _K, hash_: int, tie: Any = 0) -> None:
        """Add `key` if it is not there; `hash_` is its unsigned 32-bit hash.

        `tie` orders keys with equal hashes in a `SlotTree`; it is not used for other keys.
        """
        if key in self._where:
            return
        spread = hash_ ^ (hash_ >> 16)
        self._where[key] = (spread, tie)
        index = spread & (self._size - 1)
        slot = self._slots.get(index)
        if slot is None:
            self._slots[index] = [key]
            heapq.heappush(self._heap, index)
        elif isinstance(slot, SlotTree):
            slot.add(key, self._order(key))
        else:
            slot.append(key)
            if len(slot) > _LONG_SLOT and self._size < _TREES_FROM:
                self._grow()
            elif len(slot) > _LONG_SLOT:
                self._slots[index] = SlotTree((each, self._order(each)) for each in slot)
        if len(self._where) * 4 > self._size * 3:
            self._grow()

    def remove(self, key: _K) -> None:
        """Remove `key`, if it is there."""
        if key not in self._where:
            return
        index = self._where.pop(key)[0] & (self._size - 1)
        slot = self._slots[index]
        if (rest := slot.remove(key)) is not None:
            self._slots[index] = rest
        if not slot:
            del self._slots[index]

    def _order(self, key: _K) -> tuple[int, Any]:
        spread, tie = self._where[key]
        # Java compares spread hashes as signed numbers.
        return (spread - 0x100000000 if spread >= 0x80000000 else spread, tie)

    def _grow(self) -> None:
        self._size *= 2
        for index, slot in list(self._slots.items()):
            del self._slots[index]
            parts: dict[int, list[_K]] = {}
            for key in slot:
                parts.setdefault(self._where[key][0] & (self._size - 1), []).append(key)
            for where, keys in parts.items():
                if not isinstance(slot, SlotTree) or len(keys) <= _SHRUNK_TREE:
                    self._slots[where] = keys
                elif len(parts) == 1:
                    self._slots[where] = slot
                else:
                    self._slots[where] = SlotTree((each, self._order(each)) for each in keys)
        self._heap = sorted(self._slots)
