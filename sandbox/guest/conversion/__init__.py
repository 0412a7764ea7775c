"""Text forms of documents that are no text. Runs inside a sandbox of its own for each document, and trusts none."""
