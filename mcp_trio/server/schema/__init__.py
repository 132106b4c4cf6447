"""JSON Schemas of functions, and decoding of arguments and results by them."""
