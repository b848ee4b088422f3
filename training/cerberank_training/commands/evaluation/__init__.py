"""Parts of the verb `evaluate`: its options, the sources of its rankings, and the TREC files that it writes."""
