"""The admin port, by which an operator changes one replica."""
