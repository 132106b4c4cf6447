"""What a user builds, and the running of it."""
