"""The recount of a pipeline by Spark: what the inputs demand is computed again, and compared with the outputs."""
