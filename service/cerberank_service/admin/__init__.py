"""Administration: the admin port's app, the operations on a replica, and the commands that call the port."""
