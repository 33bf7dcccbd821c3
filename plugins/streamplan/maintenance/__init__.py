"""Changes to a deployed pipeline: reset, repartition and purge. Each has a pure plan and what applies it."""
