"""The live view of a run: a web page, served by a process of its own (extra `view`)."""
