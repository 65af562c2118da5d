"""Physics engines behind `Env`."""
