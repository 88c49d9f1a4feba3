"""Real Kafka brokers and real consumers for the tests, on 127.0.0.1 only.

What to reach for:

* the fixtures of tests/conftest.py: `kafka41` and `kafka39` (brokers), `members` (starts consumers
  and ends them with the test), `group_id`, `topic_name`;
* `broker.Broker`: one KRaft process with PLAINTEXT, SASL_SSL and mutual-TLS listeners, ACLs, a
  request log that is switched on and off, and a log of what the group coordinator alone said;
* `cluster.Cluster`: three of them, whose coordinators are moved, killed and restarted (fixtures
  `cluster41`, `cluster39`);
* `members.Host`, `members.JavaHost`: consumers under the test's control, each a `Member` whose
  events (assigned, revoked, lost, joined, error, closed) are what the client itself printed;
* `rolling.Rolling`: a group of such members that are restarted one after the other, each in its
  place; tests/live_support has those that `rebal` is asked about;
* `jars`: the pinned jars, fetched once by mvnw into `.cache/` (or `REBAL_CACHE`);
* `clients`: how members of clients other than Java are run, and the Go, Node and aiokafka programs
  that the fixture `other_clients` makes once in the same folder.

The processes end with the test run, also when it is killed: each one watches its standard input.
"""
