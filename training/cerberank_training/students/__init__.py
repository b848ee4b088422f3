"""The specification of students: a recipe's settings, the network that it trains, the texts for its int8 ranges."""
