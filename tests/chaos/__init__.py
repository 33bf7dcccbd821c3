"""The chaos suite: real processes are broken on a seeded schedule, and every record is compared with the truth.

``python -m tests.chaos --help``. Nothing here uses the project's own reading, decoding, partitioning or checking: the
topics are read with a plain consumer, and what they should hold is reckoned here.
"""
