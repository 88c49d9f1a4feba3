"""Managed Kafka services, and the sources of evidence that their documentation says they allow.

`managed_by` guesses the service from the brokers' host names alone. Each fact names the vendor's
page that it comes from (docs/managed-kafka.md shows the services side by side). Where no page
documents a source, `rebal doctor` shows by trial whether it can be read.
"""

import re
from collections.abc import Iterable
from typing import Final

from rebal.groups.model import Record


class Allowance(Record, frozen=True, kw_only=True):
    """One documented fact about one source of evidence on a managed Kafka service.

    `what` is the fact, a clause with `source` as its subject. `page` is the title of the vendor's
    page that documents it.
    """

    source: str
    what: str
    page: str


class ManagedService(Record, frozen=True, kw_only=True):
    """A managed Kafka service, with documented facts about sources of evidence.

    `hosts` is a regular expression for the whole host name of its brokers.
    """

    name: str
    hosts: str
    allows: tuple[Allowance, ...]


SERVICES: Final = (
    ManagedService(
        name="Amazon MSK",
        hosts=r".*\.kafka(-[a-z]+)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?",
        allows=(
            Allowance(
                source="request log",
                what="no: broker logs are delivered at INFO, and the request log needs DEBUG",
                page="Amazon MSK logging",
            ),
            Allowance(
                source="broker settings",
                what="with IAM: the action kafka-cluster:DescribeClusterDynamicConfiguration",
                page="Semantics of IAM authorization policy actions and resources",
            ),
            Allowance(
                source="probe",
                what="with SASL/SCRAM or mutual TLS: allowed until ACLs are set, then an ACL for "
                "Read on the group",
                page="Apache Kafka ACLs",
            ),
        ),
    ),
    ManagedService(
        name="Confluent Cloud",
        hosts=r".*\.confluent\.cloud",
        allows=(
            Allowance(
                source="request log switch",
                what="no: its ACLs have no AlterConfigs on the cluster",
                page="ACL Operations",
            ),
            Allowance(
                source="broker settings",
                what="an ACL for Describe on the cluster includes DescribeConfigs",
                page="ACL Operations",
            ),
            Allowance(
                source="probe",
                what="an ACL for Read on the consumer group",
                page="ACL Operations",
            ),
            Allowance(
                source="audit log",
                what="shows logins and permission checks, not assignor lists",
                page="Managing Audit Logs for Confluent Cloud",
            ),
        ),
    ),
    ManagedService(
        name="Aiven for Apache Kafka",
        hosts=r".*\.aivencloud\.com",
        allows=(
            Allowance(
                source="probe",
                what="Aiven ACLs allow every consumer group; a Kafka-native DENY may forbid it",
                page="Access Control Lists in Aiven for Apache Kafka",
            ),
            Allowance(
                source="request log switch",
                what="a Kafka-native ACL can name AlterConfigs and the cluster",
                page="avn service kafka-acl",
            ),
            Allowance(
                source="audit log",
                what="shows users and operations in the service logs, not assignor lists",
                page="Audit logging for Aiven for Apache Kafka",
            ),
        ),
    ),
)


def managed_by(hosts: Iterable[str]) -> ManagedService | None:
    """Return the managed service whose host names match one of `hosts`; None if there is none.

    The result is a guess from the brokers' names alone.
    """
    names = [host.rstrip(".").lower() for host in hosts]
    return next(
        (one for one in SERVICES if any(re.fullmatch(one.hosts, name) for name in names)), None
    )
