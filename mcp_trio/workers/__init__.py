"""Several processes that serve one port: `run --workers N`.

The parent (`supervisor`) binds the sockets, starts the workers and replaces those that
die or hang (`watchdog`). It does not import the user's code. Each worker (`member`) is
a new interpreter that serves on inherited sockets. `messages` has the messages between
them.
"""
