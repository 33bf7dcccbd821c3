"""Counts the records of an aggregation once more, from its topics, and compares with its changelog."""
