"""Authentication and authorization: principals, tokens and token verifiers."""
