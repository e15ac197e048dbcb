"""An S3 server as a process of its own, on loopback, with one empty bucket; and what Spark reads it with."""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import requests

from dr_ctl_lab.lab.distribution import maven

WITHIN_S = 60.0
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextmanager
def s3_server() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
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


_SDK = "software.amazon.awssdk"
JARS = (
    ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    (_SDK, "s3-transfer-manager", "2.35.4"),
    (_SDK, "sts", "2.35.4"),
)
"""Of Hadoop's client for S3 the jar itself, and of Amazon's modules those that it calls."""


@cache
def s3a() -> dict[str, str]:
    """Settings of Spark with which it reads from S3, by jars that Maven fetches."""
    folder = Path(tempfile.mkdtemp(prefix="dr-ctl-s3a-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{alone if name == 'hadoop-aws' else ''}</dependency>"
        for group, name, version in JARS
    )
    own = "<groupId>t</groupId><artifactId>t</artifactId><version>1</version>"
    (folder / "pom.xml").write_text(
        f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{wanted}</dependencies></project>"
    )
    maven("hadoop-aws", ["dependency:copy-dependencies", "-DoutputDirectory=jars"], folder)
    # What Spark has itself stays its own.
    jars = [str(jar) for jar in (folder / "jars").glob("*.jar") if not jar.name.startswith(("slf4j", "commons-"))]
    assert jars
    return {"spark.jars": ",".join(jars)}
