"""An S3 server as a process of its own, on loopback, with one empty bucket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import requests

WITHIN_S = 60.0
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextmanager
def s3_server() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The URL of a history in it, and the process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **KEYS},
    )
    try:
        until = time.monotonic() + WITHIN_S
        while True:
            assert process.poll() is None
            assert time.monotonic() < until
            try:
                requests.put(f"http://127.0.0.1:{port}/orders", timeout=5).raise_for_status()
                break
            except requests.ConnectionError:
                time.sleep(0.1)  # nothing tells when it listens
        yield f"s3://orders/history?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1", process
    finally:
        process.kill()
        process.wait(WITHIN_S)
