"""A long slot of a `java.util.HashMap`: a red-black tree that also keeps an order of iteration.

Iteration does not follow the tree: a new key comes right after its parent, and the root is moved to
the front after each change. A tree that has too few keys becomes a list again. Insertion and
deletion rebalance as in Cormen et al., "Introduction to Algorithms", chapter 13.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

_K = TypeVar("_K")


class _Node(Generic[_K]):
    __slots__ = ("key", "kids", "order", "parent", "red")

    def __init__(self, key: _K, order: Any, parent: _Node[_K] | None) -> None:
        self.key = key
        self.order = order
        self.parent = parent
        self.red = parent is not None
        self.kids: list[_Node[_K] | None] = [None, None]


class SlotTree(Generic[_K]):
    """The keys of one slot; `order` of a key is what the tree compares, different for each key."""

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
        """Put a new key in."""
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
        """Rotate the child on the other side of `side` into the place of `top`."""
        up = top.kids[1 - side]
        assert up is not None
        inner = up.kids[side]
        top.kids[1 - side] = inner
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
        if node.red:
            return
        if child is not None:
            child.red = False
        elif parent is not None:
            self._after_delete(parent, side)

    def _after_delete(self, parent: _Node[_K], side: int) -> None:
        """Restore the black height: the subtree at `parent.kids[side]` is one too low."""
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
