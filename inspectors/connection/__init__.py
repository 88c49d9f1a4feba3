"""Connection settings of a cluster, in one form for librdkafka and for kafka-python."""
