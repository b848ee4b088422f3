"""The benchmarks of `cerberank bench`, a file each: settings and a folder in, a report out."""
