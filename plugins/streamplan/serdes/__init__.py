"""How the bytes of a record's value are read and written."""
