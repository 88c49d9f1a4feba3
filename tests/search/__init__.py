"""Search for histories in which somebody who carries out rebal's advice loses a member."""
