"""Text views: model in, lines for the terminal out."""
