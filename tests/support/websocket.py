"""Frames of WebSocket as a client writes them."""

import struct

UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def masked(opcode, payload, *, final=True):
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = (
            b"\xfe" + struct.pack("!H", size)
            if size < 2**16
            else b"\xff" + struct.pack("!Q", size)
        )
    return bytes([(0x80 if final else 0) | opcode]) + length + b"\0\0\0\0" + payload
