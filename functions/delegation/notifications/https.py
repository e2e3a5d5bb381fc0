"""POST over HTTPS to a checked address: no redirect is followed, no proxy used, and one deadline covers the call.
Addresses are public, private ones only where a setting allows it: a URL whose name resolves to the service's own
network (DNS rebinding) reaches nothing there. The standard library's client connects to a checked address with the
host's name in TLS; httpx has no public way to do that."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPException, HTTPSConnection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from delegation.wire.signatures import MOST_KEYS, SHORTEST_KEY
from polaris_common.errors import DelegationError, printable


class NotificationError(DelegationError):
    """The root of this package's errors. No text has a URL, because its path or query may hold a secret."""

    code = "NOTIFICATION_ERROR"
    retryable = True


def malformed_message(message: str) -> NotificationError:
    """Return the error for a message that is not a notification; SQS moves it to the dead-letter queue."""
    return NotificationError(message, code="MALFORMED_MESSAGE", retryable=False)


class CallbackUnknown(NotificationError):
    """No setting names the callback any more."""

    code = "CALLBACK_UNKNOWN"


class CallbackKeysUnavailable(NotificationError):
    """The keys that sign callbacks cannot be read, or there is none for this callback."""

    code = "CALLBACK_KEYS_UNAVAILABLE"


def address_refused(message: str) -> NotificationError:
    """Return the error for a callback's host with a forbidden address."""
    return NotificationError(message, code="CALLBACK_ADDRESS_REFUSED")


def callback_unreachable(message: str) -> NotificationError:
    """Return the error for a callback's receiver that could not be reached or was too slow."""
    return NotificationError(message, code="CALLBACK_UNREACHABLE")


def event_not_accepted(message: str) -> NotificationError:
    return NotificationError(message, code="EVENT_NOT_ACCEPTED")


Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Sequence[str]]
_METADATA: Final = (ip_network("169.254.0.0/16"), ip_network("fd00:ec2::/32"))
"""Where AWS serves credentials and names to an instance or a container (Amazon EC2 User Guide, "Instance metadata")."""
_SPECIAL: Final = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
"""Blocks that are not globally reachable, or no longer in use: the IANA IPv4 and IPv6 Special-Purpose Address
Registries, with RFC 9637, 9602 and 9780. As data, because the interpreter's lists differ by version. An IPv6 address
outside 2000::/3 is not global either (IANA IPv6 Address Space registry)."""
_SPECIAL_BUT_GLOBAL: Final = tuple(
    map(
        ip_network,
        (
            *("192.0.0.9/32", "192.0.0.10/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128"),
            *("2001:3::/32", "2001:4:112::/48", "2001:20::/28", "2001:30::/28"),
        ),
    )
)
_UNICAST_IPV6: Final = ip_network("2000::/3")
_PRIVATE: Final = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))
"""RFC 1918, RFC 4193."""
_NEVER: Final = (ip_network("0.0.0.0/8"), ip_network("64:ff9b:1::/48"), *_METADATA)
"""This host, metadata services, and prefixes that a network translates to any IPv4 address of its own (RFC 8215)."""
_LAST_32_BITS: Final = (ip_network("64:ff9b::/96"), ip_network("::/96"), ip_network("::ffff:0:0:0/96"))
"""IPv6 addresses that end with an IPv4 address: NAT64 (RFC 6052), IPv4-compatible (RFC 4291), SIIT (RFC 2765)."""
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""What precedes the IPv4 address at the end of an ISATAP interface identifier (RFC 5214, 6.1)."""
_ROUTED: Final = (ip_network("64:ff9b::/96"), ip_network("2002::/16"), ip_network("2001::/32"))
"""NAT64, 6to4 (RFC 3056) and Teredo (RFC 4380): they lead to the IPv4 addresses in them."""


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host by the system's resolver. Raises NotificationError (CALLBACK_UNREACHABLE)."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise callback_unreachable(f"its receiver's host name cannot be resolved: {type(error).__name__}") from None
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in addresses))


def checked(addresses: Sequence[str], *, private: bool, loopback: bool = False) -> Sequence[str]:
    """Return addresses that may all be called. Raises NotificationError if there is none, or if any may not be called:
    a name with both kinds is either a mistake or an attack."""
    if not addresses:
        raise callback_unreachable("its receiver's host has no address")
    for text in addresses:
        require_callable(text, private=private, loopback=loopback)
    return addresses


def require_callable(text: str, *, private: bool, loopback: bool = False) -> None:
    """Raise NotificationError (CALLBACK_ADDRESS_REFUSED) unless a callback may be sent to this address. `private`
    allows private addresses, `loopback` this machine's, for the local stack. An IPv6 address that contains an IPv4
    address is refused unless that is public; an IPv4-mapped one counts as its IPv4 address."""
    try:
        address = _mapped(ip_address(text))
    except ValueError:
        raise address_refused(
            f"its receiver's host resolves to {printable(text)}, which is no valid IP address. Correct the host's DNS "
            "records or the callback's URL"
        ) from None
    if address.is_loopback and loopback:
        return
    inner = _inside(address)
    is_never = address.is_multicast or address.is_unspecified or address.is_link_local or address.is_loopback
    if is_never or _is_in(address, _NEVER) or not all(map(_is_global, inner)):
        raise address_refused(f"its receiver's host has the address {address}, to which callbacks are never sent")
    is_public = _is_global(address) or (bool(inner) and _is_in(address, _ROUTED))
    if not is_public and not (private and _is_in(address, _PRIVATE)):
        raise address_refused(
            f"its receiver's host has the address {address}, which is not public. To allow private addresses, set "
            "delegation.notifications.private-addresses=true"
        )


def _is_global(address: Address) -> bool:
    if address.is_multicast or (address.version == 6 and address not in _UNICAST_IPV6):
        return False
    return not _is_in(address, _SPECIAL) or _is_in(address, _SPECIAL_BUT_GLOBAL)


def _is_in(address: Address, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _mapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address maps, else the address itself: the system connects to that one."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _inside(address: Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that a transition mechanism puts into an IPv6 address."""
    if not isinstance(address, IPv6Address):
        return []
    number = int(address)
    addresses = [address.sixtofour, *(address.teredo or ())]
    if _is_in(address, _LAST_32_BITS) or (number >> 32) & 0xFFFF_FFFF in _ISATAP:
        addresses.append(IPv4Address(number & 0xFFFF_FFFF))
    return [address for address in addresses if address is not None]


TOTAL_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 3.0

Post = Callable[[str, Mapping[str, str], bytes], int]
"""Sends a body with headers to a URL and returns the status. Raises NotificationError."""


def tls(authorities: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the public authorities, and those of a PEM text."""
    context = ssl.create_default_context()
    if authorities:
        context.load_verify_locations(cadata=authorities)
    return context


class _CheckedConnection(HTTPSConnection):
    """A connection to one of its host's checked addresses. It also checks the address that it reached."""

    def __init__(self, host: str, port: int, post: "HttpsPost") -> None:
        super().__init__(host, port, timeout=post.total_seconds, context=post.context)
        self._post = post
        self.late = threading.Event()

    def connect(self) -> None:
        """Connect to the first address that answers; the certificate has to be the host's."""
        plain = self._reach()
        try:
            peer = str(plain.getpeername()[0])
            require_callable(peer, private=self._post.private, loopback=self._post.loopback)
            plain.settimeout(self._post.total_seconds)
            sock = self._post.context.wrap_socket(plain, server_hostname=self.host, do_handshake_on_connect=False)
        except BaseException:
            plain.close()
            raise
        self.sock = sock
        if self.late.is_set():
            raise TimeoutError
        sock.do_handshake()

    def _reach(self) -> socket.socket:
        failure: OSError | None = None
        addresses = self._post.resolve(self.host, self.port)
        for address in checked(addresses, private=self._post.private, loopback=self._post.loopback):
            try:
                return socket.create_connection((address, self.port), timeout=_CONNECT_SECONDS)
            except OSError as error:
                failure = error
            if self.late.is_set():
                raise TimeoutError
        raise failure or OSError("no address")

    def end(self) -> None:
        """End the connection from another thread, because its time is over."""
        self.late.set()
        if self.sock is not None:
            with contextlib.suppress(OSError):
                # The method of the plain socket: after TLS' own, later writes would be sent as plain text.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class HttpsPost:
    """A Post; `private` allows private addresses, `loopback` those of this machine."""

    context: ssl.SSLContext
    private: bool = False
    loopback: bool = False
    resolve: Resolve = resolve
    total_seconds: float = TOTAL_SECONDS

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send the body, and return the status of the answer, whose body is not read; see Post."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = _CheckedConnection(parts.hostname or "", parts.port or 443, self)
        # A socket's own time-out restarts with every byte that arrives.
        timer = threading.Timer(self.total_seconds, connection.end)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.closing(connection):
                connection.request("POST", target, body, dict(headers))
                status = connection.getresponse().status
        except ssl.SSLCertVerificationError as error:
            raise callback_unreachable(f"its receiver's certificate was refused: {error.verify_message}") from None
        except (OSError, HTTPException, ValueError) as error:
            is_slow = connection.late.is_set() or isinstance(error, TimeoutError)
            failed = callback_unreachable(f"the call to its receiver failed: {type(error).__name__}")
            raise self._slow() if is_slow else failed from None
        finally:
            timer.cancel()
        if connection.late.is_set():
            raise self._slow()  # the end of the connection looks like the end of the answer's headers
        return status

    def _slow(self) -> NotificationError:
        return callback_unreachable(f"its receiver did not answer within {self.total_seconds:g} s")


READ_AGAIN_AFTER: Final = timedelta(minutes=5)
Keys = Callable[[str], tuple[bytes, ...]]
"""Returns the keys of a callback by its name. Raises CallbackKeysUnavailable."""


def is_parameter(reference: str) -> bool:
    """Return whether a reference is an ARN of Parameter Store; otherwise it is one of Secrets Manager."""
    return reference.split(":")[2:3] == ["ssm"]


def reader(reference: str, client_of: Callable[[str], Any]) -> Callable[[], str]:
    """Return a function that reads a reference's text or raises CallbackKeysUnavailable; `client_of` makes clients."""

    def read() -> str:
        try:
            if is_parameter(reference):
                answer = client_of("ssm").get_parameter(Name=reference, WithDecryption=True)
                return str(answer["Parameter"]["Value"])
            return str(client_of("secretsmanager").get_secret_value(SecretId=reference).get("SecretString") or "")
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise CallbackKeysUnavailable(f"the keys of callbacks cannot be read from {reference}: {code}") from None
        except BotoCoreError as error:
            raise CallbackKeysUnavailable(
                f"the keys of callbacks cannot be read from {reference}: {type(error).__name__}"
            ) from None

    return read


class SigningKeys:
    """The keys that sign callbacks, never stored or logged. Their text is a JSON object with one or two keys for each
    callback, `{"catalog": ["the next key", "the present key"]}`. It is read again after READ_AGAIN_AFTER, so a key is
    replaced without a deployment."""

    def __init__(self, read: Callable[[], str], *, clock: Callable[[], datetime]) -> None:
        self._read = read
        self._clock = clock
        self._kept: tuple[datetime, Mapping[str, Any]] | None = None

    def __call__(self, name: str) -> tuple[bytes, ...]:
        """Return one or two keys of a callback, the next one first. Raises CallbackKeysUnavailable."""
        keys = self._by_name().get(name)
        texts = [keys] if isinstance(keys, str) else keys
        if not isinstance(texts, list) or not 1 <= len(texts) <= MOST_KEYS:
            raise CallbackKeysUnavailable(f"the keys of callback {name} must be a list of 1 to {MOST_KEYS} strings")
        signing_keys = tuple(text.encode() for text in texts if isinstance(text, str))
        if len(signing_keys) != len(texts) or any(len(key) < SHORTEST_KEY for key in signing_keys):
            raise CallbackKeysUnavailable(
                f"each key of callback {name} must be a string of at least {SHORTEST_KEY} bytes"
            )
        return signing_keys

    def _by_name(self) -> Mapping[str, Any]:
        now = self._clock()
        if self._kept is None or now - self._kept[0] >= READ_AGAIN_AFTER:
            self._kept = (now, _object(self._read()))
        return self._kept[1]


def _object(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None  # the parser's error would quote the keys
    if not isinstance(document, dict):
        raise CallbackKeysUnavailable('the keys of callbacks must be a JSON object such as {"catalog": ["…"]}')
    return document
