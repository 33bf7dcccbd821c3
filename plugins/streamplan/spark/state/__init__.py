"""Checkpoints and state stores: where a query begins, how lost state is restored, and what a store holds."""
