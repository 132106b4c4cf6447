"""Stores: the state that the processes of one server share."""
