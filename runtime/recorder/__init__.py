"""The flight recorder (extra `record`): every tick into an MCAP file, and what can be made of one."""
