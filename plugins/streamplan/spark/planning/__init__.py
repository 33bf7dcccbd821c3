"""The execution plan of a sub-topology, from its sources to the rows that are written."""
