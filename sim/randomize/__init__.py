"""Physics, sensors, delays and timing that differ from world to world and from episode to episode."""

from .randomizer import Randomizer

__all__ = ["Randomizer"]
