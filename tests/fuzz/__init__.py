"""Changed bytes and generated values for every serde: ``PYTHONPATH=plugins:. .venv/bin/python -m tests.fuzz``.

A subject is a module of this package with two names; ``__main__.py`` lists the modules:

    NAME = "json"                                    what --serde takes

    def findings(random: Random) -> Iterator[str]    makes one case, tries it, and yields what is wrong, a sentence each

A case is made of ``random`` alone, so that its number and the seed make it again. Choose a serde and some values, then
give them to the functions of :mod:`tests.fuzz.judging`, which yield the findings:

- ``reading(serde, values)``: only ``Undecodable`` comes out, and the column is the single values.
- ``writing(serde, value)``: what is written is read as the same value.
- ``agreeing(serde, data, partner)``: the reference library takes what the serde takes, and gives the same fields.

An exception of ``findings`` is a finding, too. So is a process that dies of a signal, or a case that does not end: the
cases run in a child process (:mod:`tests.fuzz.runner`). :mod:`tests.fuzz.bytes_and_values` makes changed bytes and
values of any field type.
"""
