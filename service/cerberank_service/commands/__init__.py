"""The commands of `cerberank server`."""
