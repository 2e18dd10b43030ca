"""Pure folds: object to rows; batch to usage, history and checkpoints."""
