"""Which addresses a callback may be sent to."""

import pytest

from delegation.notifications.https import NotificationError, checked, require_callable
from tests.kit.errors import coded

PUBLIC = [
    *("192.0.0.9", "2001:20::1", "192.175.48.1", "2620:4f:8000::1"),
    *("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"),
    *("2002:808:808::1", "2001:0:808:808:0:0:f7f7:f7f7", "2606:4700::5efe:8.8.8.8"),
]
PRIVATE = ["10.0.0.7", "172.16.3.4", "192.168.1.1", "fd12:3456::1", "::ffff:10.0.0.7"]
LOOPBACK = ["127.0.0.1", "127.255.3.4", "::1", "::ffff:127.0.0.1"]
EMBEDDING = {
    "compatible": "::10.0.0.7",
    "compatible loopback": "::127.0.0.1",
    "translated": "::ffff:0:10.0.0.7",
    "6to4": "2002:a00:7::1",
    "6to4 loopback": "2002:7f00:1::",
    "Teredo client": "2001:0:808:808:0:0:f5ff:fff8",
    "Teredo server": "2001:0:a00:7:0:0:f7f7:f7f7",
    "NAT64": "64:ff9b::a00:7",
    "NAT64 loopback": "64:ff9b::7f00:1",
    "NAT64 of a network": "64:ff9b:1::a00:7",
    "NAT64 of a network, /48": "64:ff9b:1:a00:0:700::",
    "NAT64 of a network, to a public address": "64:ff9b:1::808:808",
    "ISATAP": "2606:4700::5efe:10.0.0.7",
    "ISATAP, universal": "2606:4700::200:5efe:192.168.1.1",
    "ISATAP metadata": "2606:4700::5efe:169.254.169.254",
}
NEVER = [
    *("169.254.169.254", "169.254.170.2", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    *("fd00:ec2::254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "0.0.0.0", "0.1.2.3", "::"),
    *("255.255.255.255.1", ""),
]
SPECIAL = [
    *("100.64.0.1", "192.0.0.192", "192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "240.0.0.1", "255.255.255.255", "100::1", "100:0:0:1::1", "2001:2::1", "2001:10::1"),
    *("2001:db8::1", "3fff::1", "5f00::1", "fec0::1", "4000::1", "2002:c058:6301::1"),
]
"""Neither public nor private."""


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("private", [True, False])
def test_a_public_address_is_called(address, private):
    require_callable(address, private=private)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_called_only_by_setting(address):
    require_callable(address, private=True)
    with pytest.raises(NotificationError, match="private-addresses=true", check=coded("CALLBACK_ADDRESS_REFUSED")):
        require_callable(address, private=False)


@pytest.mark.parametrize("address", LOOPBACK)
@pytest.mark.parametrize("private", [True, False])
def test_this_machine_is_called_by_the_local_stack_only(address, private):
    require_callable(address, private=private, loopback=True)
    with pytest.raises(NotificationError, match="never sent", check=coded("CALLBACK_ADDRESS_REFUSED")):
        require_callable(address, private=private)


@pytest.mark.parametrize("form", EMBEDDING)
@pytest.mark.parametrize("private", [True, False])
def test_an_ipv6_address_with_a_private_ipv4_address_in_it_is_never_called(form, private):
    with pytest.raises(NotificationError, check=coded("CALLBACK_ADDRESS_REFUSED")):
        require_callable(EMBEDDING[form], private=private, loopback=True)


@pytest.mark.parametrize("address", [*NEVER, *SPECIAL])
@pytest.mark.parametrize("private", [True, False])
def test_metadata_link_local_multicast_and_special_addresses_are_never_called(address, private):
    with pytest.raises(NotificationError, check=coded("CALLBACK_ADDRESS_REFUSED")):
        require_callable(address, private=private)


def test_a_name_with_one_address_that_may_not_be_called_is_refused():
    assert checked(PUBLIC, private=False) == PUBLIC
    with pytest.raises(NotificationError, check=coded("CALLBACK_ADDRESS_REFUSED")):
        checked(["8.8.8.8", "10.0.0.7"], private=False)
    with pytest.raises(NotificationError, check=coded("CALLBACK_UNREACHABLE")):
        checked([], private=True)
