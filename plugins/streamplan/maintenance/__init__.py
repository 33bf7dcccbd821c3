"""Changes to what is deployed: reset, redrive, repartition, purge and upgrade. Each has a plan and what applies it."""
