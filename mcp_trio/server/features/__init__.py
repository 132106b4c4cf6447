"""The features of a server: tools, resources, prompts and completion."""
