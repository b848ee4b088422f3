"""What is trained: student shapes, recipes, calibration texts, model cards, averages of related students."""
