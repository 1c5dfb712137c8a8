"""The raw connection of disque-cli: any command, in RESP2 or RESP3, and bytes as they are.

Opening it also prepares it for commands: TLS, HELLO 3 where RESP3 is wanted, AUTH. A refused password does not close
the connection, because some commands need no login. The refusal is kept in `warnings`, which the caller shows. This
module sends nothing twice. The caller decides whether to repeat a command on a new connection.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from disque_py.cli.address import Target, Tls
from disque_py.cli.shell.replies import NotRespError, Reply, ReplyParser, encode

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES: Final = 1 << 18


# Reasons of failed TLS handshakes, as OpenSSL names them, and what may help.
NOT_TLS: Final = "WRONG_VERSION_NUMBER"
NOT_TRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
# OpenSSL's codes for a certificate whose authority is not trusted. Others are names that don't match, or dates.
UNKNOWN_AUTHORITY: Final = range(18, 22)


class ConnectError(Exception):
    """There is no connection; the text is the whole line to print."""


class TlsFileError(ConnectError):
    """A file for TLS can't be used, so no node was asked."""


class ConnectionLostError(Exception):
    """The connection broke, timed out, or sent something other than RESP; the text gives the reason."""


def reason_of(error: OSError) -> str:
    """Return the system's words for an error, without its number."""
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror or str(error)) + _tls_advice(error)


def _tls_advice(error: OSError) -> str:
    reason = getattr(error, "reason", None)  # Only errors of TLS have it.
    if reason == NOT_TLS:
        return " (the port may not speak TLS)"
    if reason == NOT_TRUSTED and getattr(error, "verify_code", 0) in UNKNOWN_AUTHORITY:
        return " (name the authority of its certificate with --cacert)"
    return ""


def reason_to_hang_up(tls: Tls | None) -> str:
    """Return the likely reason why the server hung up without a reply. A node sends none when TLS fails on its side."""
    if tls is None:
        return " (if it speaks TLS, use --tls)"
    return " (does it trust this certificate?)" if tls.cert_file else " (it may require --cert and --key)"


class Connection:
    """An open connection. `protocol` is the version agreed on; `warnings` are texts for the user."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        self.target = target
        self.protocol = 2
        self.warnings: list[str] = []
        self._socket = sock
        self._parser = ReplyParser()
        self._has_heard = False

    @classmethod
    def open(cls, target: Target) -> Connection:
        """Connect, agree on the protocol and log in. Raises ConnectError if that is not possible."""
        sock = None
        context = None if target.tls is None else tls_context(target.tls)
        try:
            sock = _connect(target, context)
            sock.settimeout(target.read_timeout_s)
            connection = cls(sock, target)
            connection._introduce()
        except (OSError, ValueError, ConnectionLostError) as error:
            if sock is not None:
                sock.close()
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            raise ConnectError(f"Could not connect to Disque at {target.address}: {reason}") from error
        return connection

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    @property
    def socket(self) -> socket.socket:
        """The socket, for a caller that waits on it itself."""
        return self._socket

    def write(self, data: bytes) -> None:
        """Send bytes as they are. Raises ConnectionLostError if the server is gone."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def send(self, words: list[bytes]) -> None:
        """Send one command."""
        self.write(encode(words))

    def read(self) -> Reply:
        """Wait for the next reply. Raises ConnectionLostError if none can come any more."""
        try:
            while (reply := self._parser.take()) is None:
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionLostError("Server closed the connection" + self._guess())
                self._has_heard = True
                self._parser.feed(data)
        except NotRespError as error:
            raise ConnectionLostError(f"The server does not speak RESP: {error}") from error
        except OSError as error:
            raise self._lost(error) from error
        return reply

    def call(self, *words: bytes | str) -> Reply:
        """Send a command and wait for its reply, an error reply included."""
        self.send([word.encode() if isinstance(word, str) else word for word in words])
        return self.read()

    def call_many(self, commands: list[list[bytes]]) -> list[Reply]:
        """Send all commands in one write, and return their replies in order. For up to a few hundred short commands."""
        self.write(b"".join(encode(words) for words in commands))
        return [self.read() for _ in commands]

    def _lost(self, error: OSError) -> ConnectionLostError:
        """Return the error for a broken connection.

        A node that hangs up before it has read all of our bytes resets the connection. Whether this program sees the
        reset or an end is chance, so both are the same error.
        """
        is_hung_up = isinstance(error, ConnectionError) or type(error).__name__ == "SSLEOFError"
        if is_hung_up and not self._has_heard:
            return ConnectionLostError("Server closed the connection" + self._guess())
        return ConnectionLostError(reason_of(error))

    def _guess(self) -> str:
        return "" if self._has_heard else reason_to_hang_up(self.target.tls)

    def _introduce(self) -> None:
        target = self.target
        if target.protocol == 3 and (self._hello(3) or self.warnings):
            return
        if target.user:
            # AUTH takes a password alone; names are only known to HELLO.
            self._hello(2)
        elif target.password:
            reply = self.call("AUTH", target.password.encode())
            if reply.is_error:
                self.warnings.append(f"AUTH failed: {reply.text.decode(errors='replace')}")

    def _hello(self, protocol: int) -> bool:
        """Send HELLO with a version, and the login if there is one. Return whether the server accepts the version."""
        target = self.target
        login = ["AUTH", target.user or "default", target.password] if target.password or target.user else []
        reply = self.call("HELLO", str(protocol), *login)
        if not reply.is_error:
            self.protocol = protocol
            return True
        text = reply.text.decode(errors="replace")
        if reply.text.startswith((b"WRONGPASS", b"NOAUTH")):
            self.warnings.append(f"AUTH failed: {text}")
        elif protocol == 3 and not target.protocol_is_preferred:
            raise ConnectionLostError(f"HELLO 3 failed: {text}")
        elif target.user and protocol == 2:
            self.warnings.append(f"AUTH failed: {text}")
        return False


def _connect(target: Target, context: ssl.SSLContext | None) -> socket.socket:
    """Return a socket to the target, with TLS around it where wanted."""
    address = target.address
    if address.path:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(target.connect_timeout_s)
            sock.connect(address.path)
        except OSError:
            sock.close()
            raise
    else:
        sock = socket.create_connection((address.host, address.port), target.connect_timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return sock
    try:
        return context.wrap_socket(sock, server_hostname=address.host)
    except (OSError, ValueError):
        sock.close()
        raise


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context. Raises TlsFileError if a file can't be used."""
    import ssl  # Loading it takes a while, and most connections don't need it.

    from disque_py.client.tls import trusting

    try:
        context = trusting(tls.ca_file)
    except OSError as error:
        raise TlsFileError(f"Can't use --cacert {tls.ca_file}: {reason_of(error)}") from error
    if tls.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
        except OSError as error:
            files = f"--cert {tls.cert_file}" + (f" with --key {tls.key_file}" if tls.key_file else "")
            raise TlsFileError(f"Can't use {files}: {reason_of(error)}") from error
    return context
