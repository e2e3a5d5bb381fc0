"""Which addresses a callback may be sent to: those of the public internet, private ones only where a setting says so.

So a URL whose name resolves to the service's own network, or begins to (DNS rebinding), reaches nothing there.
"""

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from delegation.notifications.errors import AddressRefused, CallbackUnreachable

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Sequence[str]]
_METADATA: Final = (ip_network("169.254.0.0/16"), ip_network("fd00:ec2::/32"))
"""Where AWS serves credentials and names to an instance or a container (Amazon EC2 User Guide, "Instance metadata")."""
_TRANSLATED: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
"""IPv6 addresses that represent an IPv4 address, in the last 32 bits (RFC 6052, RFC 8215)."""


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host by the system's resolver; raises CallbackUnreachable."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise CallbackUnreachable(f"the name of its host cannot be resolved: {type(error).__name__}") from None
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def checked(addresses: Sequence[str], *, private: bool) -> Sequence[str]:
    """Return addresses that may all be called; raise AddressRefused if one may not, CallbackUnreachable for none.

    One that may not refuses all, because a name with both kinds is either a mistake or an attack.
    """
    if not addresses:
        raise CallbackUnreachable("its host has no address")
    for text in addresses:
        require_callable(text, private=private)
    return addresses


def require_callable(text: str, *, private: bool) -> None:
    """Raise AddressRefused unless a callback may be sent to this address."""
    try:
        address = _plain(ip_address(text))
    except ValueError:
        raise AddressRefused("its host has an address that cannot be read") from None
    is_never = address.is_multicast or address.is_unspecified or address.is_link_local
    if is_never or any(address in network for network in _METADATA if network.version == address.version):
        raise AddressRefused(f"its host has the address {address}, which no callback may be sent to")
    if not address.is_global and not (private and address.is_private):
        raise AddressRefused(
            f"its host has the address {address}, which is not public; "
            "delegation.notifications.private-addresses=true allows private ones"
        )


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address represents, else the address itself."""
    if not isinstance(address, IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
