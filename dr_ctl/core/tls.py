"""The files of TLS with one site's brokers, for consoles and listeners alike."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of authorities (None for those of this machine), a certificate and its key, maybe in the same file."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True

    @property
    def files(self) -> list[str]:
        return [file for file in (self.ca, self.cert, self.key) if file is not None]

    def context(self) -> ssl.SSLContext:
        """Build a client context; OSError and ssl.SSLError where a file is unusable."""
        context = ssl.create_default_context(cafile=self.ca)
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context
