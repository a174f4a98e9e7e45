"""The one interface behind which test hosts are made, and which kinds there are."""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, NoReturn

from fleet import Fleet, FleetError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Backend(abc.ABC):
    """Makes and removes the hosts of a fleet. Paths and addresses come from the fleet; the rest is the backend's."""

    @abc.abstractmethod
    def check(self, fleet: Fleet) -> None:
        """Raise FleetError when this machine cannot carry such hosts, with what is missing."""

    @abc.abstractmethod
    def up(self, fleet: Fleet, binds: Sequence[str], arguments: Sequence[str]) -> None:
        """Make and boot every host. May be interrupted at any point; `down` then removes what there is."""

    @abc.abstractmethod
    def down(self, fleet: Fleet) -> None:
        """Remove every trace of the fleet's name, however little of it exists. Never fails for what is not there."""

    @abc.abstractmethod
    def execute(self, fleet: Fleet, command: Sequence[str]) -> NoReturn:
        """Replace this process by the command, in the network of the fleet."""

    @abc.abstractmethod
    def cut(self, fleet: Fleet, host: str) -> None:
        """Cut the host off the network; what runs on it goes on."""

    @abc.abstractmethod
    def join(self, fleet: Fleet, host: str) -> None:
        """Undo `cut`."""

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


def chosen() -> Backend:
    """The backend that SGLANG_TEST_BACKEND names; nspawn when it names none."""
    name = os.environ.get("SGLANG_TEST_BACKEND") or "nspawn"
    if name == "nspawn":
        import nspawn

        return nspawn.Nspawn()
    raise FleetError(f"SGLANG_TEST_BACKEND={name} is not a kind of test host here; there is: nspawn")
