"""Stream processes: wiring of topics, projectors and sinks."""
