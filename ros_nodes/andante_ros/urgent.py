"""A service that answers whatever the node is busy with."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

Answer = Callable[[Trigger.Request, Trigger.Response], Trigger.Response]


class UrgentService:
    """`~/NAME` of a node, in an executor and thread of its own: a transition may take as long as it likes."""

    def __init__(self, node: Node, name: str, answer: Answer) -> None:
        """`answer` is called in that thread."""
        # Without the command line's arguments, which would give it the other one's name.
        self._node = Node(
            f"{node.get_name()}_{name}",
            namespace=node.get_namespace(),
            use_global_arguments=False,
            start_parameter_services=False,
            enable_rosout=False,
        )
        self._node.create_service(Trigger, f"{node.get_fully_qualified_name()}/{name}", answer)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._executor.shutdown()
        self._thread.join()
        self._node.destroy_node()
