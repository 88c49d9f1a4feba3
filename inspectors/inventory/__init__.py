"""Configuration files and Kubernetes workloads: settings for the next start of consumers."""
