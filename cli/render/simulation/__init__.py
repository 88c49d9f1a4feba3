"""The screens and documents of `rebal simulate` and `rebal rehearse`."""
