"""The process that listens: it takes scans, hands them to the worker, and survives it. No torch here."""
