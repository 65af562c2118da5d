"""The one exception family that users see as a single line."""

from __future__ import annotations


class AndanteError(Exception):
    """Wrong input or a failed check; its text names the thing, the expected and the found.

    The command line prints it as one line and exits with 1.
    """


class ArtifactError(AndanteError):
    """A policy file that is damaged, foreign, or not what its contract says."""


class ProfileError(AndanteError):
    """A robot profile that is malformed, or that does not fit the policy."""
