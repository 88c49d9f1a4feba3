"""The report of `rebal fleet`: screen, Markdown, HTML page, document."""
