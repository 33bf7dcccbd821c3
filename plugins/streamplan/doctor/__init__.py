"""What stands between here and a first green run, one line each, with what to do. It looks, and changes nothing."""
