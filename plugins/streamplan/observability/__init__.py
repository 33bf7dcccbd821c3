"""What runs now: one snapshot, which the page, the terminal and the exporter show."""
