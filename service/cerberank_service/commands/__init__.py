"""The commands of `cerberank admin`."""
