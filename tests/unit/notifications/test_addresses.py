"""Which addresses a callback may be sent to."""

import pytest

from delegation.notifications.addresses import checked, require_callable
from delegation.notifications.errors import AddressRefused, CallbackUnreachable

PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    "10.0.0.7",
    "172.16.3.4",
    "192.168.1.1",
    "127.0.0.1",
    "::1",
    "fd12:3456::1",
    "::ffff:10.0.0.7",
    "64:ff9b::a00:7",
]
NEVER = [
    "169.254.169.254",
    "169.254.170.2",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "224.0.0.1",
    "ff02::1",
    "0.0.0.0",
    "::",
    "255.255.255.255.1",
    "",
]


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("private", [True, False])
def test_a_public_address_is_called(address, private):
    require_callable(address, private=private)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_called_only_by_setting(address):
    require_callable(address, private=True)
    with pytest.raises(AddressRefused, match="private-addresses=true"):
        require_callable(address, private=False)


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("private", [True, False])
def test_metadata_link_local_and_multicast_addresses_are_never_called(address, private):
    with pytest.raises(AddressRefused):
        require_callable(address, private=private)


def test_shared_address_space_is_not_public():
    """RFC 6598: neither private nor global."""
    for private in (True, False):
        with pytest.raises(AddressRefused):
            require_callable("100.64.0.1", private=private)


def test_a_name_with_one_address_that_may_not_be_called_is_refused():
    assert checked(PUBLIC, private=False) == PUBLIC
    with pytest.raises(AddressRefused):
        checked(["8.8.8.8", "10.0.0.7"], private=False)
    with pytest.raises(CallbackUnreachable):
        checked([], private=True)
