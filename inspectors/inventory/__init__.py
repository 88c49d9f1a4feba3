"""Configuration files and Kubernetes workloads: what the next start will use."""
