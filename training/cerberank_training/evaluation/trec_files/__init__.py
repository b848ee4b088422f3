"""Rankings as TREC's files: a run (`query Q0 document rank score tag`) and its qrels (`query 0 document grade`)."""
