"""The operator's side: the admin port, what an operator does to a replica, and the verbs that ask the port."""
