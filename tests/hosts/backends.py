"""The one interface behind which test hosts are made, and which kinds there are."""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, NoReturn

import network
from fleet import SUITES, Fleet, FleetError

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKENDS = ("nspawn", "uml", "vm")


class Backend(abc.ABC):
    """Makes and removes the hosts of a fleet. Paths and addresses come from the fleet; the rest is the backend's."""

    # How many times as long as on this machine itself things may take on its hosts.
    patience = 1
    # The releases of Debian that its hosts may have; the first one where none is asked for.
    suites = SUITES

    @abc.abstractmethod
    def check(self, fleet: Fleet) -> None:
        """Raise FleetError when this machine cannot carry such hosts, with what is missing."""

    @abc.abstractmethod
    def up(self, fleet: Fleet, binds: Sequence[str], arguments: Sequence[str]) -> None:
        """Make and boot every host. May be interrupted at any point; `down` then removes what there is."""

    @abc.abstractmethod
    def down(self, fleet: Fleet) -> None:
        """Remove every trace of the fleet's name, however little of it exists. Never fails for what is not there."""

    def execute(self, fleet: Fleet, command: Sequence[str]) -> NoReturn:
        """Replace this process by the command, in the network of the fleet."""
        network.execute(fleet, command)

    def cut(self, fleet: Fleet, host: str) -> None:
        """Cut the host off the network; what runs on it goes on."""
        self._set_link(fleet, host, "down")

    def join(self, fleet: Fleet, host: str) -> None:
        """Undo `cut`."""
        self._set_link(fleet, host, "up")

    def _set_link(self, fleet: Fleet, host: str, state: str) -> None:
        if not self.is_running(fleet, host):
            raise FleetError(f"host '{host}' of fleet '{fleet.name}' is off")
        network.ip(fleet, "link", "set", network.port(fleet, host), state)

    @abc.abstractmethod
    def kill(self, fleet: Fleet, host: str) -> None:
        """Take the host's power away: nothing on it is stopped in order. Its disk stays."""

    @abc.abstractmethod
    def start(self, fleet: Fleet, host: str) -> None:
        """Boot a host that is off, from the disk it has."""

    @abc.abstractmethod
    def is_running(self, fleet: Fleet, host: str) -> bool:
        """Say whether the host has power."""

    @abc.abstractmethod
    def has_given_up(self, fleet: Fleet, host: str) -> bool:
        """Say whether the host is off and will not boot by itself."""


def chosen() -> str:
    """The name of the backend that new fleets get: what SGLANG_TEST_BACKEND says, and else nspawn."""
    name = os.environ.get("SGLANG_TEST_BACKEND") or BACKENDS[0]
    if name not in BACKENDS:
        raise FleetError(
            f"SGLANG_TEST_BACKEND={name} is not a kind of test host here; there are: {', '.join(BACKENDS)}"
        )
    return name


def named(name: str) -> Backend:
    if name == "uml":
        import uml

        return uml.Uml()
    if name == "vm":
        import vm

        return vm.Vm()
    import nspawn

    return nspawn.Nspawn()


def of(fleet: Fleet) -> Backend:
    """The backend that the fleet was made with."""
    return named(fleet.backend)
