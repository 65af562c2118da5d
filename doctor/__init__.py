"""What is looked at before a robot moves: the machine, the robot, its profile, and the policy file."""
