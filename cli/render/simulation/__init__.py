"""The screens and the document of `rebal simulate`."""
