"""A certificate for servers on loopback."""

import ssl
import subprocess
from pathlib import Path


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", *subject]
    subprocess.run([*words, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    return cert, key


def serving(certificate: tuple[Path, Path], *, asks_back: bool = False) -> ssl.SSLContext:
    """The context of a server; with `asks_back` it demands a certificate of its client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if asks_back:
        context.load_verify_locations(certificate[0])
        context.verify_mode = ssl.CERT_REQUIRED
    return context
