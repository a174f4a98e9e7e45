# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cards of a host mean for a start: the declared ones are there, healthy, whole, and not held by others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from .card_health import CardHealth, ListedCard
from .check import Kind, check
from .driver_checks import loaded_version, not_wanted, wants_cuda
from .driver_readings import pci_cards
from .host_readings import HostReadings
from .kernel_log import NOTE, REBOOT, RESET_LATER, SERIOUS, KernelLog, Xid, same_bus, together
from .reading import CouldNotTell, Unknown, known
from .wanted import Wanted

# After so long a serious line of the kernel is history, as long as the card answers well now.
RECENT_S = 24 * 3600.0

DECLARED = Kind(
    "cards.declared_missing",
    ERROR,
    "a declared card is not on the host",
    "CUDA does not see it: the server ends with `No CUDA GPUs are available`, or takes fewer ranks than declared.",
    "declare the cards as `nvidia-smi -L` prints them",
    "CUDA_VISIBLE_DEVICES with a card that does not exist hides the ones after it",
)
LOST = Kind(
    "cards.lost",
    ERROR,
    "a card does not answer",
    "A lost card does not come back without a reset, mostly not without a reboot.",
    "drain the host and reboot it; if it comes again, have the card looked at",
    "NVML: GPU is lost, reset required",
)
MIG = Kind(
    "cards.mig",
    ERROR,
    "a card declared whole is divided by MIG",
    "CUDA gives the server the first MIG device alone, a part of the memory, and NCCL does not join MIG devices.",
    "declare the MIG devices by UUID (`nvidia-smi -L`), or switch MIG off",
    "NVIDIA's MIG user guide",
)
PERSISTENCE = Kind(
    "cards.persistence_off",
    WARNING,
    "persistence mode is off",
    "Without a client the driver shuts the card down: each start waits for its initialisation, and settings such as "
    "clocks and power limits are lost.",
    "`systemctl enable --now nvidia-persistenced`; or, until the next boot, `nvidia-smi -pm 1`",
    "NVIDIA's driver persistence guide",
)
ECC = Kind(
    "cards.ecc_uncorrectable",
    ERROR,
    "a card has uncorrectable memory errors",
    "What the card computes may be wrong, and the program that meets the error is ended.",
    "drain the host, then: `nvidia-smi --gpu-reset -i CARD`; if it comes again, have the card looked at",
    "NVML: volatile uncorrectable ECC errors",
)
REMAP = Kind(
    "cards.reset_pending",
    WARNING,
    "a card waits for a reset to replace faulty memory",
    "Rows or pages that failed are replaced at the next reset and not before.",
    "drain the host, then: `nvidia-smi --gpu-reset -i CARD`",
    "NVML: remapped rows and retired pages",
)
XID = Kind(
    "cards.xid",
    ERROR,
    "the kernel reported a fault of a card since this boot",
    "Xid lines are the driver's report of a fault. Serious ones mean that the card wants a reset, the host a reboot, "
    "or the hardware a look.",
    "drain the host; reset the card or reboot as the finding says",
    "NVIDIA's Xid catalogue",
)


def _driver_is_loaded(readings: HostReadings) -> None:
    """Without a driver every tool fails in its own words. The one cause is said instead."""
    if not isinstance(readings.kernel_module, Unknown):
        loaded_version(readings)


def _every_card(readings: HostReadings) -> tuple[CardHealth, ...]:
    """Their health. Raises where it is unknown, or where there are none to look at."""
    _driver_is_loaded(readings)
    cards = known(readings.health).cards
    if not cards:
        raise CouldNotTell("the driver shows no card")
    return cards


def _each(
    cards: Iterable[CardHealth], fields: Sequence[str], judge: Callable[[CardHealth], Finding | None], kind: Kind
) -> Iterable[Finding]:
    """Judge every card; say of which one a field that found nothing could not be read."""
    for card in cards:
        found = judge(card)
        if found is not None:
            yield found
            continue
        reasons = [value.reason for value in (getattr(card, name) for name in fields) if isinstance(value, Unknown)]
        if reasons:
            summary = f"could not tell of card {card.index}: {kind.title}"
            yield Finding(kind.id, UNKNOWN, summary, "; ".join(reasons), "see `nvidia-smi -q`")


@check(DECLARED)
def declared_cards(readings: HostReadings) -> Iterable[Finding]:
    declared = [each for each in readings.wanted if each.on_cuda and each.cards]
    if not declared:
        yield DECLARED.fine("no instance declares its cards")
        return
    _driver_is_loaded(readings)
    listed = _listed(readings)
    names = {str(card.index) for card in listed} | {card.uuid for card in listed}
    names |= {uuid for card in listed for uuid in card.mig_uuids}
    for wanted in declared:
        # CUDA takes the beginning of a UUID too, where it fits one card alone.
        missing = [str(card) for card in wanted.cards or () if not _names_one(str(card), names)]
        if missing:
            yield DECLARED.found(
                f"instance '{wanted.name}' declares {', '.join(missing)}, which this host does not have",
                "the host has " + ("; ".join(_shown(card) for card in listed) or "no card"),
                f"declare cards of this host for '{wanted.name}'; `nvidia-smi -L` prints them",
            )


def _names_one(card: str, names: set[str]) -> bool:
    return card in names or (not card.isdigit() and len([name for name in names if name.startswith(card)]) == 1)


def _shown(card: ListedCard) -> str:
    devices = f", MIG {', '.join(card.mig_uuids)}" if card.mig_uuids else ""
    return f"{card.index}: {card.name} {card.uuid}{devices}"


def _listed(readings: HostReadings) -> tuple[ListedCard, ...]:
    """As nvidia-smi -L lists them; without MIG devices where only NVML answered."""
    if not isinstance(readings.listed, Unknown):
        return readings.listed
    gpus = readings.gpus
    if isinstance(gpus, Unknown) or not gpus.cards or any(card.mig for card in gpus.cards):
        raise CouldNotTell(readings.listed.reason, readings.listed.fix)
    return tuple(ListedCard(card.index, card.name, card.uuid) for card in gpus.cards)


@check(LOST)
def lost_cards(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield LOST.fine("no card is needed", not_wanted(readings))
        return
    _driver_is_loaded(readings)
    gpus = known(readings.gpus)
    for card in gpus.broken:
        yield LOST.found(f"card {card.index} ({card.name or card.bus or 'unnamed'}) does not answer", card.problem)
    if not gpus.cards:
        reasons = "; ".join(str(problem.get("text")) for problem in gpus.problems)
        raise CouldNotTell(f"no card could be asked: {reasons or 'the driver shows none'}")
    pci = readings.pci
    if not isinstance(pci, Unknown) and len(pci_cards(pci)) > len(gpus.cards):
        shown = {machine_address(card.bus) for card in gpus.cards}
        without = [each.address for each in pci_cards(pci) if machine_address(each.address) not in shown]
        yield LOST.found(
            f"{len(pci_cards(pci))} NVIDIA cards are on the PCI bus and the driver shows {len(gpus.cards)}",
            f"not shown by the driver: {', '.join(without) or 'not told'} (one may be given to a virtual machine)",
            "`dmesg | grep -i nvrm` says why; reboot, or put the host on the ignore list where it is on purpose",
            severity=WARNING,
        )


def machine_address(bus: str) -> str:
    """0000:3b:00.0, from either way of writing it."""
    domain, _colon, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def declared_for(readings: HostReadings, card: CardHealth) -> list[Wanted]:
    """The instances that declare this card as a whole, by index or UUID."""
    return [
        wanted
        for wanted in readings.wanted
        if wanted.on_cuda and wanted.cards and any(str(one) in (str(card.index), card.uuid) for one in wanted.cards)
    ]


@check(MIG)
def mig_mode(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield MIG.fine("no card is needed", not_wanted(readings))
        return

    def judge(card: CardHealth) -> Finding | None:
        if card.mig is True:
            for wanted in declared_for(readings, card):
                return MIG.found(
                    f"instance '{wanted.name}' declares card {card.index} as a whole, and it is divided by MIG",
                    f"{card.text()}: MIG mode enabled",
                    f"declare MIG-… UUIDs (`nvidia-smi -L`), or drain and: `nvidia-smi -i {card.index} -mig 0`",
                )
        if isinstance(card.mig, bool) and isinstance(card.mig_pending, bool) and card.mig != card.mig_pending:
            return MIG.found(
                f"the MIG mode of card {card.index} changes at its next reset",
                f"{card.text()}: now {_on(card.mig)}, pending {_on(card.mig_pending)}",
                f"drain the host, then: `nvidia-smi --gpu-reset -i {card.index}`",
                severity=WARNING,
            )
        return None

    yield from _each(_every_card(readings), ("mig", "mig_pending"), judge, MIG)


def _on(value: bool) -> str:
    return "enabled" if value else "disabled"


@check(PERSISTENCE)
def persistence_mode(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield PERSISTENCE.fine("no card is needed", not_wanted(readings))
        return
    off: list[CardHealth] = []

    def judge(card: CardHealth) -> Finding | None:
        if card.persistence is False:
            off.append(card)
        return None

    yield from _each(_every_card(readings), ("persistence",), judge, PERSISTENCE)
    if off:
        services = readings.services
        daemon = "" if isinstance(services, Unknown) else _persistenced(services.get("nvidia-persistenced.service"))
        yield PERSISTENCE.found(
            f"persistence mode is off on card {', '.join(str(card.index) for card in off)}",
            "; ".join(f"{card.text()}: persistence mode disabled" for card in off) + daemon,
        )


def _persistenced(service: object) -> str:
    active = getattr(service, "active", None)
    return "" if active is None else f"; nvidia-persistenced.service is {'active' if active else 'not active'}"


@check(ECC)
def ecc_errors(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield ECC.fine("no card is needed", not_wanted(readings))
        return

    def judge(card: CardHealth) -> Finding | None:
        if not isinstance(card.uncorrectable_volatile, int) or card.uncorrectable_volatile == 0:
            return None
        return ECC.found(
            f"card {card.index} met {card.uncorrectable_volatile} uncorrectable memory errors since the driver came up",
            f"{card.text()}: volatile uncorrectable ECC errors {card.uncorrectable_volatile}",
            f"drain the host, then: `nvidia-smi --gpu-reset -i {card.index}`; if it comes again, have the card looked "
            "at",
        )

    yield from _each(_every_card(readings), ("uncorrectable_volatile",), judge, ECC)


@check(REMAP)
def reset_pending(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield REMAP.fine("no card is needed", not_wanted(readings))
        return

    def judge(card: CardHealth) -> Finding | None:
        waiting = [name for name in ("remap_pending", "retirement_pending") if getattr(card, name) is True]
        if card.remap_failure is True:
            return REMAP.found(
                f"card {card.index} could not replace faulty memory",
                f"{card.text()}: row remapping failed",
                "have the card replaced; until then take it out of the instances",
                severity=ERROR,
            )
        if waiting or card.recovery_action:
            asked = f"; the driver asks for: {card.recovery_action}" if card.recovery_action else ""
            return REMAP.found(
                f"card {card.index} waits for a reset",
                f"{card.text()}: {', '.join(waiting) or 'recovery'} pending{asked}",
                f"drain the host, then: `nvidia-smi --gpu-reset -i {card.index}`",
                severity=ERROR if card.recovery_action else WARNING,
            )
        return None

    yield from _each(_every_card(readings), ("remap_pending", "remap_failure", "retirement_pending"), judge, REMAP)


@check(XID)
def xid_lines(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield XID.fine("no card is needed", not_wanted(readings))
        return
    read = [log for log in (readings.dmesg, readings.kernel_journal) if isinstance(log, KernelLog)]
    if not read:
        reasons = [log.reason for log in (readings.dmesg, readings.kernel_journal) if isinstance(log, Unknown)]
        raise CouldNotTell("; ".join(reasons))
    # A program that was ended says nothing about the card: what else there is, is reported.
    groups: dict[tuple[str, str], list[Xid]] = {}
    noted: dict[str, int] = {}
    for xid in together(read):
        if xid.meaning.action == NOTE:
            what = f"{xid.name} ({xid.meaning.text})"
            noted[what] = noted.get(what, 0) + 1
        else:
            groups.setdefault((xid.name, xid.bus), []).append(xid)
    for (name, bus), events in groups.items():
        yield _xid_finding(readings, name, bus, events)
    if not groups:
        yield XID.fine("the kernel reported no fault of a card", _what_was_read(read, noted))


def _what_was_read(read: Iterable[KernelLog], noted: dict[str, int]) -> str:
    parts = []
    for log in read:
        back = "since the boot" if log.whole else "not back to the boot"
        if not log.whole and log.reaches_back_s is not None:
            back = f"of the last {log.reaches_back_s / 3600:.1f} h, not back to the boot"
        parts.append(f"{log.source}: {log.lines} lines {back}")
        if log.no_memory_lines:
            parts.append(f"{log.no_memory_lines} lines with NV_ERR_NO_MEMORY, which alone are no alarm")
    parts += [f"{count} x {what}" for what, count in noted.items()]
    return "; ".join(parts)


def _xid_finding(readings: HostReadings, name: str, bus: str, events: list[Xid]) -> Finding:
    newest = min(events, key=lambda xid: float("inf") if xid.age_s is None else xid.age_s)
    meaning = newest.meaning
    card = _card_at(readings, bus)
    who = f"card {card.index} at {bus}" if card else f"the device at {bus}"
    when = "at a time not told" if newest.age_s is None else f"last {newest.age_s / 3600:.1f} h ago"
    severity = WARNING
    if meaning.action in SERIOUS:
        history = newest.age_s is not None and newest.age_s > RECENT_S and card is not None
        severity = WARNING if history else ERROR
    index = str(card.index) if card else "CARD"
    fix = "see the server's log of that time; a card that meets it with other programs too wants a look"
    if meaning.action in (RESET_LATER, *SERIOUS):
        fix = f"drain the host, then: `nvidia-smi --gpu-reset -i {index}`; if it comes again, have the card looked at"
    if newest.switch:
        fix = "drain the host and reboot it; if it comes again, have the board looked at"
    elif meaning.action == REBOOT:
        fix = "drain the host and reboot it; if it comes again, have the card looked at"
    return XID.found(
        f"{name} on {who}, {len(events)} times, {when}: {meaning.text}",
        f"kernel log, {bus}: {newest.number}, {newest.text or 'no text'}",
        fix,
        severity=severity,
    )


def _card_at(readings: HostReadings, bus: str) -> CardHealth | None:
    """The card at an address, if it answers now."""
    health = readings.health
    if isinstance(health, Unknown):
        return None
    return next((card for card in health.cards if same_bus(bus, card.bus)), None)


CHECKS = (
    declared_cards,
    lost_cards,
    mig_mode,
    persistence_mode,
    ecc_errors,
    reset_pending,
    xid_lines,
)
