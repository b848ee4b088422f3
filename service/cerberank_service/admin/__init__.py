"""The admin port, through which an operator changes one replica."""
