"""Finds the address at which the other nodes of a job can reach this one."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from dataclasses import dataclass

from foreload import _places
from foreload._errors import config_error

REMEDY = 'give the address of this node: peers={"listen": "address:port"}, or --listen on the command line'


@dataclass(frozen=True)
class Listening:
    """An address of this node, and the reason for it."""

    address: str
    """Numeric, IPv4 or IPv6."""
    port: int
    """0 means any free port."""
    reason: str

    def refuse_if_unreachable(self, nodes: int) -> None:
        """Raise an error if only this node itself can reach the address, and there are others.

        Raises:
            foreload.ConfigError: It is a loopback address, and there are several nodes.
        """
        if nodes > 1 and ipaddress.ip_address(self.address).is_loopback:
            message = f"{self.address}, {self.reason}, cannot be reached by other nodes: {REMEDY}"
            raise config_error("peers", message)


def listen_address(given: str | None = None) -> Listening:
    """Return the address at which this node should listen: as given, else of the interface that reaches its launcher.

    If the launcher's address is unknown, as with mpirun, it is the address of this node's name. It never means all
    interfaces, because the server is for this job alone.

    Args:
        given: `address:port`, `[address]:port` for IPv6, or an address alone. Names are looked up.

    Raises:
        foreload.ConfigError: The given address is not one of this node. Or none is given, the launcher's address is
        unknown, and this node's name cannot be looked up.
    """
    if given is not None:
        return _given(given)
    if _places.in_ray_worker():
        return Listening(
            _numeric(sys.modules["ray"].util.get_node_ip_address()), 0, "this node's address in Ray"
        )
    coordinator = getattr(_places.jax_state(), "coordinator_address", None) or os.environ.get(
        "JAX_COORDINATOR_ADDRESS"
    )
    for source, host in (
        ("MASTER_ADDR", os.environ.get("MASTER_ADDR")),
        ("JAX's coordinator", _host_and_port(coordinator)[0] if coordinator else None),
        ("SLURM_LAUNCH_NODE_IPADDR", os.environ.get("SLURM_LAUNCH_NODE_IPADDR")),
    ):
        if host:
            return Listening(_towards(host, source), 0, f"by which this node reaches {source}={host}")
    node = os.environ.get("SLURMD_NODENAME")
    if node:
        return Listening(_numeric(node, "SLURMD_NODENAME"), 0, f"the address of SLURMD_NODENAME={node}")
    host = socket.gethostname()
    address = _numeric(host, "the launcher's network is unknown, and the host name")
    return Listening(
        address, 0, f"the address of this node's name {host}, because the launcher's network is unknown"
    )


def _given(text: str) -> Listening:
    """Return the address and port that the user gave."""
    host, port = _host_and_port(text)
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise config_error("peers", f'listen is {text!r}, must be like "10.0.0.7:7100" or "[fd00::7]:7100"')
    address = _numeric(host, "listen")
    if ipaddress.ip_address(address).is_unspecified:
        message = (
            f"listen is {text!r}, which means all interfaces; must be the address at which other nodes reach "
            "this one"
        )
        raise config_error("peers", message)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind((address, 0))
        except OSError as failure:
            message = f"listen is {text!r}, which is not an address of this node: {failure}"
            raise config_error("peers", message) from failure
    return Listening(address, int(port), "as given")


def _host_and_port(text: str) -> tuple[str, str]:
    """Return the two parts; without a port, the second is 0."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") or "0"
    if text.count(":") > 1:
        return text, "0"
    host, _, port = text.partition(":")
    return host, port or "0"


def _numeric(host: str, source: str = "address") -> str:
    """Return the first numeric address of a name."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as failure:
        raise config_error("peers", f"{source}={host} cannot be looked up: {failure}; {REMEDY}") from failure


def _towards(host: str, source: str) -> str:
    """Return the address from which this node reaches a host. Nothing is sent: the kernel only chooses a route."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as route:
            route.connect(address)
            return str(route.getsockname()[0])
    except OSError as failure:
        message = f"{source}={host} cannot be reached or looked up: {failure}; {REMEDY}"
        raise config_error("peers", message) from failure
