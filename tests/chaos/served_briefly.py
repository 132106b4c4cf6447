"""The same server, whose sessions end seconds after their clients have left."""

from mcp_trio.transports.http.sessions import Sessions
from tests.chaos.served import server as server

Sessions.idle_timeout = 3.0
