"""Builds the site of the documentation: pages that are made from the code, and how MkDocs reads the others."""
