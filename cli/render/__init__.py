"""Views of results: text for the terminal, Markdown, HTML pages, and documents."""
