"""The console: a web page that calls a server and shows every message."""
