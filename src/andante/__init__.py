"""Recurrent, action-chunking robot policies: trained in parallel MuJoCo, verified, run in real time."""

__version__ = "0.1.0"
