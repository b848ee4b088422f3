"""The benchmarks of `cerberank bench`, one per file: settings and a folder in, a report out."""
