"""Runs the sub-topologies of a pipeline on Spark, one streaming query each."""
