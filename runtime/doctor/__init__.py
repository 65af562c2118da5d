"""What keeps a machine from keeping the rate, and what is wrong in a robot's profile."""
