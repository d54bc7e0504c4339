"""ninja's command: ask the server to run one step, wait, pass on what it says.

A script of its own, run with `python -I -S`: it starts in milliseconds, so it imports almost nothing.
"""

import _socket
import os
import sys


def ask(path: str, step: str) -> int:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
        connection.send(step.encode() + b"\n")
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    except OSError as error:
        sys.stderr.write(f"step server: {error}\n")
        return 1
    code, _, text = answer.partition(b"\n")
    os.write(1, text)
    return int(code) if code.isdigit() else 1


if __name__ == "__main__":
    os._exit(ask(os.environ["CUVIL_SOCKET"], sys.argv[1]))
