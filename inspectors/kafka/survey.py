"""All groups of a cluster at once, in few requests: `survey`."""

from __future__ import annotations

from typing import NamedTuple

from rebal.groups.model import GroupSnapshot
from rebal.inspectors.connection.config import ClusterConfig
from rebal.inspectors.kafka.listing import GroupFailure, list_groups, pattern_of
from rebal.inspectors.kafka.read import read_all
from rebal.inspectors.kafka.session import connect


class Survey(NamedTuple):
    """The groups of a cluster, those that could not be read or listed, and notes on all of them."""

    groups: list[GroupSnapshot]
    failures: list[GroupFailure]
    notes: tuple[str, ...] = ()


def survey(config: ClusterConfig, *, match: str | None = None) -> Survey:
    """Return every group of the cluster, or those whose whole id matches `match`.

    A broker that does not answer delays the answer by one timeout, whatever the number of groups.

    Raises:
        SelectionError: `match` is no regular expression, or no group matches it.
        ConnectError: the cluster cannot be reached, or the login is rejected.
    """
    pattern = pattern_of(match)
    with connect(config) as session:
        found, failures = list_groups(session.raw, pattern, needed=match is not None)
        answers = read_all(session, list(found), found)
    groups = [each for each in answers if isinstance(each, GroupSnapshot)]
    failures += [
        each
        for each in answers
        # A group that was deleted after it was listed is not missed.
        if isinstance(each, GroupFailure) and each.kind != "not-found"
    ]
    return Survey(groups, failures, tuple({note: None for one in groups for note in one.notes}))
