"""What a server has for clients: tools, resources, prompts and completion."""
