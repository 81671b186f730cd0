"""The server's side of NBD's handshake by hand, for servers that keep to the protocol no longer than that."""
import socket
import struct

_OPTION_REPLY, _INFO, _ACK, _UNSUPPORTED = 0x3E889045565A9, 3, 1, 0x80000001
_GO, _STRUCTURED_REPLY = 7, 8


def take(connection, count):
    data = connection.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise ConnectionResetError("the client has gone")
    return data


def shake_hands(connection, size, at_go=None):
    """As a server with structured replies whose export is so many bytes long, until it has answered GO.
    at_go: called in place of that answer, with one piece of information, as a server may send many."""
    def reply(kind, data=b""):
        return struct.pack(">QIII", _OPTION_REPLY, option, kind, len(data)) + data

    connection.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    take(connection, 4)
    while True:
        _, option, count = struct.unpack(">QII", take(connection, 16))
        take(connection, count)
        if option == _GO:
            break
        connection.sendall(reply(_ACK if option == _STRUCTURED_REPLY else _UNSUPPORTED))
    info = reply(_INFO, struct.pack(">HQH", 0, size, 1))
    if at_go is not None:
        return at_go(info)
    connection.sendall(info + reply(_ACK))
