"""ROS 2 nodes over `andante.runtime`."""
