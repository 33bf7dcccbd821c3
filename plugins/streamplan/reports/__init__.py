"""Files that a deployment holds about itself: results of checks, the verified cut, the status of the aggregator."""
