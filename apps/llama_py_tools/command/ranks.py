"""Commands over several machines: an MPI launcher starts the command on each machine.

    mpiexec -n 4 llama-py-cli -m model.gguf
    llama-py-cli --hosts a,b:2 -m model.gguf

Rank 0 is the command, with the devices mpi0, mpi1, ...; the other ranks compute for it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params.option import Params, option

if TYPE_CHECKING:
    from llama_py_tools.command.supervisor import Hosts

FLAG = "--hosts"
HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:\[\]]+))(?::(?P<n>\d+))?")
LINGER = 10.0  # seconds during which a server reports a lost rank to its clients


class HostsParams(Params):
    """Machines that run a model together."""

    group = "machines"

    hosts: str = option(
        "",
        FLAG,
        "machines to run on together, over MPI; :N starts N processes on a machine",
        metavar="HOST[:N],...",
        env="",
    )


def join_ranks(serves: bool = False, plans: bool = False) -> int | None:
    """Join the ranks that a launcher started. Return the exit code of a rank other than the first,
    once it has ended; None for the first, or without a launcher.

    Starts the launcher in place of this process if --hosts is present.

    serves  a server, which is restarted with --hosts after a rank is lost: see `supervisor`
    plans   the command only plans, so placeholders replace the ranks
    """
    n = _count_started()
    if n == 1:
        return None
    if n == 0:
        hosts = _hosts(sys.argv[1:])
        if not hosts:
            return None
        if plans:
            _name_devices(sum(n for _, n in parse_hosts(hosts)))
            return None
        if serves:
            from llama_py_tools.command.supervisor import supervise

            return supervise(parse_hosts(hosts), launch)
        command = launch(parse_hosts(hosts))
        sys.stdout.flush()
        os.execv(command[0], command)
    from ggml_mpi.keeper import fork_keeper, own_rank

    fork_keeper(LINGER if serves else 0.0)
    return _in_rank(n, own_rank())


def _in_rank(n: int, rank: int) -> int | None:
    from ggml_mpi.worker import leave_signals

    if rank:
        leave_signals()
    from ggml_mpi.world import world
    from ggml_py.errors import BackendError

    try:
        world()
    except BackendError as e:  # raised in all ranks
        if rank == 0:
            sys.stderr.write(f"error: {e}\n")
            sys.stderr.flush()
        else:
            time.sleep(1)  # time for rank 0 to print the error
        os._exit(1)
    if rank == 0:
        _name_devices(n)
        return None
    from ggml_mpi.worker import serve

    serve()
    return 0


def _name_devices(n: int) -> None:
    """Set the default device names; commas would separate runs of llama-py-bench."""
    os.environ.setdefault("LLAMA_ARG_DEVICE", "/".join(f"mpi{i}" for i in range(n)))


def _count_started() -> int:
    """Return the number of ranks that a launcher started; 0 without one."""
    if not any(name.startswith(("PMI", "OMPI_")) for name in os.environ):
        return 0  # the usual case: avoid the import
    from ggml_mpi.keeper import SIZES, n_started

    return n_started() if any(name in os.environ for name in SIZES) else 0


def rank_memory(breakdown: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return each rank's part of a context's memory, one line each; [] without other ranks."""
    if _count_started() < 2:
        return []
    from ggml_mpi.world import world
    from llama_py.fit.ranks import by_rank

    use = by_rank(breakdown)
    return [
        f"rank {rank} on {world().hosts[rank]}: weights {_mib(of, 'model')}, context"
        f" {_mib(of, 'context')}, compute {_mib(of, 'compute')}"
        for rank, of in enumerate(use)
    ]


def _mib(use: Mapping[str, int], what: str) -> str:
    return f"{use.get(what, 0) / 2**20:.2f} MiB"


def n_here() -> int:
    """Return the number of ranks on this machine, which share its threads."""
    if _count_started() < 2:
        return 1
    from ggml_mpi.world import world

    return world().n_local


def _hosts(words: Sequence[str]) -> str:
    for i, word in enumerate(words):
        if word == FLAG and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{FLAG}="):
            return word.partition("=")[2]
    return ""


def parse_hosts(hosts: str) -> Hosts:
    """Parse machines with numbers of processes; exits with an error if they are invalid."""
    found = []
    for host in hosts.split(","):
        what = HOST.fullmatch(host)
        if what is None or what["n"] == "0":
            more = "; put an IPv6 address in brackets" if host.count(":") > 1 else ""
            sys.exit(f"error: {FLAG} {hosts}: expected HOST[:N],...{more}")
        found.append((what["name"] or _host_name(what["address"]), int(what["n"] or 1)))
    return found


def _host_name(address: str) -> str:
    """Return a host name for an IPv6 address, since launchers split names at colons and connect by
    IPv4. Exits with an error if the address has no name."""
    import socket

    try:
        name = socket.gethostbyaddr(address)[0]
        socket.getaddrinfo(name, None, socket.AF_INET)
    except OSError:
        sys.exit(
            f"error: {FLAG} [{address}]: the launcher needs a name or an IPv4 address, but this "
            "machine has no name for the address; add one to /etc/hosts"
        )
    return name


def _may_have_ipv4(name: str) -> bool:
    """Return False for a name with other addresses only; names that only ssh knows are accepted."""
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.getaddrinfo(name.rpartition("@")[2], None, family)
            return family == socket.AF_INET
    return True


def launch(hosts: Hosts) -> list[str]:
    """Return the command that starts this one on the hosts; exits with an error without a
    launcher."""
    import shutil

    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    program = beside or shutil.which("mpiexec")
    if program is None:
        from ggml_py.machine.extras import install_hint

        sys.exit(f"error: {FLAG} needs MPI: {install_hint('mpi')}")
    for name, _ in hosts if len(hosts) > 1 else ():
        if not _may_have_ipv4(name):
            sys.exit(
                f"error: {FLAG} {name}: has only an IPv6 address, but MPICH's launcher needs "
                "IPv4; give the machines IPv4 addresses, such as private ones or addresses of a "
                "tunnel"
            )
    total = sum(n for _, n in hosts)
    where = ",".join(f"{name}:{n}" for name, n in hosts)
    return [program, "-hosts", where, "-n", str(total), sys.executable, *sys.argv]
