"""YAML of plain values, without what would be misread in silence.

That is a key given twice, of which the last would win, and a number to the base of 60: 1:30 would be 90.
"""

from __future__ import annotations

from typing import Any

import yaml


def load_yaml(data: bytes) -> Any:
    """Parse.

    Raises:
        yaml.YAMLError: names the line of the fault.
    """
    return yaml.load(data, _Strict)


class _Strict(yaml.SafeLoader):
    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if ":" in node.value and node.tag.endswith((":int", ":float")):
            raise yaml.MarkedYAMLError(None, None, f"number {node.value!r} has a colon", node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(None, None, f"key {key.value!r} given twice", key.start_mark)
        return node
