"""Faults of nodes that share their caches, for `test_nodes.py`: each function starts a fault, and returns the function
that ends it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal

from node_world import PORT, End, Fault, Run, World, namespaces

TABLE = 100
"""The routing table that leads to the first node through its man in the middle; the tables of the other nodes
follow."""


def nothing() -> None:
    """End a fault that ends without help."""


def kill(run: Run, rng: random.Random) -> End | None:
    """A node dies."""
    if len(run.alive()) < 2:
        return None
    node = rng.choice(run.alive())
    run.dead.add(node)
    for process in run.of(node):
        process.end(kill=True)
    return nothing


def lie(run: Run, rng: random.Random) -> End | None:
    """A hostile server listens in place of a dead node."""
    if not run.dead - run.lied_for and kill(run, rng) is None:
        return None
    node = rng.choice(sorted(run.dead - run.lied_for))
    run.lied_for.add(node)
    at = run.world.nodes[node]
    liar = run.helper(at, "lie", at.address, PORT, rng.getrandbits(32))
    assert liar.stdout.readline() == "ready\n"
    return nothing


def pause(run: Run, rng: random.Random) -> End:
    """A node stops, and continues later."""
    node = rng.choice(run.alive())
    run.stopped.add(node)
    for process in run.of(node):
        process.process.send_signal(signal.SIGSTOP)

    def end() -> None:
        for process in run.of(node):
            process.process.send_signal(signal.SIGCONT)

    return end


def unplug(run: Run, rng: random.Random) -> End:
    """All data from and to a node is lost."""
    link = f"{namespaces.BRIDGE}{rng.choice(run.alive())}"
    run.world.call("ip link set", link, "nomaster")
    return lambda: run.world.call("ip link set", link, "master", namespaces.BRIDGE)


def down(run: Run, rng: random.Random) -> End:
    """A node's interface is down."""
    name = run.world.nodes[rng.choice(run.alive())].name
    run.world.call("ip -n", name, "link set net0 down")
    return lambda: run.world.call("ip -n", name, "link set net0 up")


def no_route(run: Run, rng: random.Random) -> End:
    """A node has no route to another one."""
    one, other = rng.sample(run.world.nodes, 2)
    metric = rng.randrange(1000, 2**30)
    route = f"{rng.choice(['blackhole', 'unreachable', 'prohibit'])} {other.address}/32 metric {metric}"
    run.world.call("ip -n", one.name, "route add", route)
    return lambda: run.world.call("ip -n", one.name, "route del", route)


def full_disk(run: Run, rng: random.Random) -> End:
    """The file system of a node's cache is full, half of the time just after the cache was emptied."""
    node = rng.choice(run.alive())
    ballast = run.world.caches[node].parent / f"ballast-{rng.getrandbits(32)}"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    if rng.random() < 0.5:
        for segment in run.world.segments(node):
            segment.unlink(missing_ok=True)
        with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
    return lambda: ballast.unlink()


def strangers(run: Run, rng: random.Random) -> End:
    """Clients without a token send requests to a node, from the node itself, where no other fault interferes."""
    number = rng.choice(run.alive())
    node = run.world.nodes[number]
    how = "tls" if run.setup.tls else "plain"
    process = run.helper(node, "strangers", node.address, PORT, rng.getrandbits(32), how)

    def end() -> bool:
        # In place of a dead node, a hostile server may respond without end.
        if number in run.dead:
            process.kill()
            return False
        if process.poll() is None:
            return True
        said = json.loads(process.communicate()[0])
        assert not said["odd"], said["odd"]
        assert said["refused"] == said["requests"], said
        run.refused[number] += said["refused"]
        run.world.found["strangers refused"] += said["refused"]
        return False

    return end


def damage(run: Run, rng: random.Random) -> End:
    """Bytes in the segments of a node's cache change, or segments are truncated."""
    for path in run.world.segments(rng.choice(run.alive())):
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if rng.random() < 0.1:
                file.truncate(rng.randrange(size))
                continue
            for _ in range(rng.randint(1, 5)):
                at = rng.randrange(size)
                byte = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 1 << rng.randrange(8)]), at)
            run.world.found["damaged segments"] += 1
    return nothing


def remove(run: Run, rng: random.Random) -> End:
    """The segments of a node's cache are deleted."""
    for path in run.world.segments(rng.choice(run.alive())):
        path.unlink(missing_ok=True)
    return nothing


def between(run: Run, rng: random.Random, how: str = "damage") -> End | None:
    """A man in the middle between a node and its clients damages, delays and cuts off data."""
    free = [node for node in run.alive() if node not in run.stood_before]
    if not free:
        return None
    number = rng.choice(free)
    node, middle = run.world.nodes[number], run.world.middles[number]
    run.stood_before.add(number)
    run.world.call("ip -n", middle.name, "address add", f"{node.address}/32 dev lo")
    there = namespaces.NAMESPACES / node.name
    helper = run.helper(middle, "between", node.address, PORT, there, rng.getrandbits(32), how)
    assert helper.stdout.readline() == "ready\n"
    # The node's own requests to others, and their responses, are not redirected.
    detour = f"to {node.address}/32 ipproto tcp dport {PORT} table {TABLE + number}"
    others = [one for one in run.world.nodes if one is not node]
    for one in others:
        # An interface that was down meanwhile has lost its routes.
        route = f"{node.address}/32 via {middle.address} dev net0 onlink table {TABLE + number}"
        with contextlib.suppress(namespaces.Refused):
            run.world.call("ip -n", one.name, "route replace", route)
        run.world.call("ip -n", one.name, "rule add", detour)

    def end() -> None:
        for one in others:
            run.world.call("ip -n", one.name, "rule del", detour)
        helper.kill()
        run.world.call("ip -n", middle.name, "address del", f"{node.address}/32 dev lo")
        run.stood_before.remove(number)

    return end


def change(run: Run, rng: random.Random) -> End:
    """Files of the dataset change while it is read."""
    run.world.change(rng, 20, in_place=rng.random() < 0.3)
    return nothing


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "lie": lie,
    "pause": pause,
    "unplug": unplug,
    "down": down,
    "no route": no_route,
    "full disk": full_disk,
    "strangers": strangers,
    "damage": damage,
    "remove": remove,
    "between": between,
    "change": change,
}
"""The faults that start during training."""


def before_run(world: World, name: str) -> None:
    """Apply a change between two runs."""
    world.faults[name] += 1
    if name == "changed before":
        world.change(world.rng, 60, in_place=world.rng.random() < 0.5)
    elif name == "resized before":
        world.change(world.rng, 10, in_place=False, length=True)
    else:
        for cache in world.caches:
            shutil.rmtree(cache, ignore_errors=True)


BEFORE = ("changed before", "resized before", "emptied before")
"""The changes between two runs."""
