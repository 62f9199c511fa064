"""The address at which a node listens for its peers: the given one, or one on the launcher's network, never every
interface.
"""

from __future__ import annotations

import os
import socket

import foreload
import pytest
from foreload import _listen


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("MASTER_", "SLURM", "JAX_COORDINATOR")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "address", "port"),
    [
        ("127.0.0.1:7100", "127.0.0.1", 7100),
        ("127.0.0.1", "127.0.0.1", 0),
        ("localhost:0", None, 0),
        ("[::1]:7100", "::1", 7100),
        ("::1", "::1", 0),
    ],
)
def test_an_address_given(given: str, address: str | None, port: int) -> None:
    if ":" in (address or "") and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    listening = _listen.listen_address(given)
    assert listening.port == port
    assert listening.address in ([address] if address else ["127.0.0.1", "::1"])
    assert listening.reason == "as given"


def _has_ipv6() -> bool:
    """Return whether ::1 can be bound."""
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("0.0.0.0:7100", "all interfaces; must be the address at which other nodes reach this one"),
        ("[::]:1", "all interfaces"),
        ("", "must be like"),
        ("127.0.0.1:x", "must be like"),
        ("127.0.0.1:70000", "must be like"),
        (":7100", "must be like"),
        ("192.0.2.77:7100", "is not an address of this node"),
        ("no-such-host.invalid:1", "cannot be looked up"),
    ],
)
def test_an_address_that_cannot_be(given: str, complaint: str) -> None:
    with pytest.raises(foreload.ConfigError, match=f"^config: peers: .*{complaint}"):
        _listen.listen_address(given)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"MASTER_ADDR": "127.0.0.1", "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.1"}, "MASTER_ADDR=127.0.0.1"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:81"}, "JAX's coordinator=127.0.0.1"),
        ({"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "SLURMD_NODENAME": "x"}, "SLURM_LAUNCH_NODE_IPADDR"),
        ({"SLURMD_NODENAME": "localhost"}, "SLURMD_NODENAME=localhost"),
    ],
)
def test_the_launchers_side(variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    listening = _listen.listen_address()
    assert reason in listening.reason
    assert listening.port == 0
    listening.refuse_if_unreachable(1)
    with pytest.raises(foreload.ConfigError, match=r"cannot be reached by other nodes: give the address"):
        listening.refuse_if_unreachable(4)


def test_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under mpirun, whose nodes know each other by name."""
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    listening = _listen.listen_address()
    assert listening.address in ("127.0.0.1", "::1")
    assert listening.reason.startswith(
        "the address of this node's name localhost, because the launcher's network"
    )
    with pytest.raises(foreload.ConfigError, match=r"cannot be reached by other nodes: give the address"):
        listening.refuse_if_unreachable(2)
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    with pytest.raises(
        foreload.ConfigError,
        match=r'network is unknown, and the host name=no-such-host.invalid cannot .*peers={"listen": "address:port"}',
    ):
        _listen.listen_address()
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    with pytest.raises(
        foreload.ConfigError, match=r"MASTER_ADDR=no-such-host.invalid cannot be reached or looked"
    ):
        _listen.listen_address()
