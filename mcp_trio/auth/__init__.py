"""Authentication and authorization: principals, tokens, and how tokens are verified."""
