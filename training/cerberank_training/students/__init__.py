"""Students: their shapes, recipes, calibration texts, model cards, and averages of related students."""
