"""Support for Colossal-AI's names: its loaders, and the modules that they load."""
