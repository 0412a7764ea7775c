"""The command line: parses, asks the App, renders. Holds no rule of the product and imports the worker nowhere."""
