"""Parts of the verb `evaluate`: its options, sources of rankings, and TREC files; and the verb `table`."""
