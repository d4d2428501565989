"""Kintsugi: a Kubernetes operator for self-healing DeepSeek-V4 inference fleets."""

__version__ = "0.1.0"
