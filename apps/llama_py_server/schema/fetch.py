"""Safe download of files that requests name by http(s) URLs: addresses are checked before
connecting, so that clients cannot reach the server's internal network."""

from __future__ import annotations

import http.client
import ipaddress
import logging
import socket
import ssl
import threading
import time
from urllib.parse import SplitResult, urljoin, urlsplit

from llama_py.params.texts import without_credentials
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.work import Work, require

log = logging.getLogger("llama_py")

SECONDS = 10.0  # time limit for all downloads of a request
MOST = 10 * 2**20  # maximum bytes of all downloads (llama-server: of each)
N_TIMES = 4  # maximum redirects of a URL
PIECE = 2**16
FAILED = "Failed to download image"


class Fetching:
    """Downloader of one request.

    where  "public": internet only;  "any": all addresses;  "none": disabled
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._left, self._until = MOST, 0.0

    def get(self, url: str) -> bytes:
        """Download a URL; HTTPError if it is not allowed or fails."""
        if self.where == "none":
            raise invalid(
                "this server does not download http(s) URLs; send the image as base64, or set "
                "--media-urls"
            )
        require(Work.FETCH)
        self._until = self._until or time.monotonic() + SECONDS
        for _ in range(N_TIMES):
            log.info("downloading %s", ascii(without_credentials(url)[:200]))
            try:
                status, location, data = self._answer(_parts(url))
            except (OSError, ValueError, http.client.HTTPException) as e:
                raise invalid(f"{FAILED}: {e!a}") from None
            if status in (301, 302, 303, 307, 308) and location:
                url = urljoin(url, location)
                continue
            if not 200 <= status < 300:
                raise invalid(f"{FAILED}: {status}")
            return data
        raise invalid(f"{FAILED}: too many redirects")

    def _answer(self, parts: SplitResult) -> tuple[int, str, bytes]:
        """Return status, location and body of the response to one GET."""
        assert parts.hostname is not None
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        sock = self._connect(parts.hostname, port)
        with _Ending(sock, self._seconds()):
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            made = kind(parts.hostname, port)
            made.sock = sock
            try:
                if secure:
                    context = ssl.create_default_context()
                    made.sock = context.wrap_socket(sock, server_hostname=parts.hostname)
                path = parts.path or "/"
                made.request(
                    "GET",
                    f"{path}?{parts.query}" if parts.query else path,
                    headers={"User-Agent": "llama-py", "Accept": "image/*"},
                )
                answer = made.getresponse()
                return answer.status, answer.getheader("Location", ""), self._body(answer)
            finally:
                made.close()

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        found = bytearray()
        while piece := answer.read1(PIECE):
            found += piece
            self._left -= len(piece)
            if self._left < 0:
                raise ValueError(f"more than {MOST >> 20} MiB")
        return bytes(found)

    def _connect(self, host: str, port: int) -> socket.socket:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(address[0]) for *_, address in found]
        if self.where != "any" and not all(map(is_public, addresses)):
            raise HTTPError(
                "invalid_request_error",
                f"{FAILED}: {host!a} has a private address, and only public addresses are "
                "allowed; see --media-urls",
            )
        return socket.create_connection((addresses[0], port), self._seconds())

    def _seconds(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the download took more than {SECONDS:.0f} seconds")
        return left


class _Ending:
    """A connection that ends after a time limit, even if the server responds slowly."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._sock = sock.dup()  # TLS takes over the original socket

    def _end(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("the remote side closed the connection")

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._sock.close()


def _parts(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("expected http(s)://HOST/...")
    if any(ord(c) <= 32 or ord(c) > 126 for c in url):
        raise ValueError("a URL must be ASCII without spaces")
    return parts


def is_public(address: str) -> bool:
    """Return True if an address is on the public internet, as well as any address embedded in
    it."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inside = ip.sixtofour or (ip.teredo or (None, None))[1]
        if any(ip in network for network in _TRANSLATED):
            inside = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inside is not None:
            return is_public(str(inside))
        if ip.is_site_local or ip in _TRANSLATED_HERE:
            return False
    return ip.is_global and not ip.is_multicast


# Networks that embed an IPv4 address in 32 bits: compatible, mapped, translated (RFC 6052, 8215).
_TRANSLATED = [
    ipaddress.IPv6Network(one)
    for one in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/96")
]
_TRANSLATED_HERE = ipaddress.IPv6Network("64:ff9b:1::/48")
