"""Build files, lock files and images: which Kafka client and which product the next start runs."""
