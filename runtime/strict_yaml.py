"""YAML of plain values, in which no key of a mapping is given twice: the last would win in silence."""

from __future__ import annotations

from typing import Any

import yaml


def load_yaml(data: bytes) -> Any:
    """Parse.

    Raises:
        yaml.YAMLError: names the line of the fault.
    """
    return yaml.load(data, _UniqueKeys)


class _UniqueKeys(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(None, None, f"key {key.value!r} given twice", key.start_mark)
        return node
