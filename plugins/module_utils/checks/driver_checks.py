# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver of a host means for a start: there at all, of one version, new enough, and staying so."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from ..image_reference import NotAReference, TagFacts, parse_reference, read_tag
from ..pinned_packages import MINIMUM_DRIVER, numbers
from ..release_pins import PINS
from .check import Kind, check
from .driver_readings import pci_cards
from .host_readings import HostReadings
from .reading import CouldNotTell, Unknown, known
from .wanted import Wanted

# SGLang's last release with an image for CUDA 12, and that image. Later ones are CUDA 13 throughout.
LAST_CUDA_12 = (0, 5, 19)
LAST_CUDA_12_TAG = "v0.5.19-cu129"
# NVIDIA supports its compatibility library on data-centre cards alone.
_DATA_CENTRE = re.compile(
    r"\b(?:A2|A10|A16|A30|A40|A100|A800|H20|H100|H200|H800|GH200|L2|L4|L20|L40S?|B100|B200|B300|GB200|GB300|T4|V100|P4|P40|P100)\b"
)

MISSING = Kind(
    "driver.missing",
    ERROR,
    "no NVIDIA driver although an instance wants one",
    "SGLang ends at once: torch finds no CUDA device.",
    "install NVIDIA's driver, or declare `device: cpu` for the instances of this host",
    "SGLang: `device` defaults to what torch finds",
)
NOUVEAU = Kind(
    "driver.nouveau",
    ERROR,
    "the kernel runs nouveau instead of NVIDIA's driver",
    "nouveau holds the cards, so NVIDIA's module cannot take them and no CUDA program starts.",
    "keep nouveau from loading and reboot",
    "NVIDIA's installation guide",
)
MISMATCH = Kind(
    "driver.library_mismatch",
    ERROR,
    "the driver in the kernel and its library are of different versions",
    "What runs goes on; whatever starts now ends with `Driver/library version mismatch`. An upgrade of the packages "
    "does this, mostly an unattended one: the module in the kernel stays the old one until it is loaded again.",
    "stop what uses the cards and load the module again, or reboot",
    "nvidia-smi: `Failed to initialize NVML: Driver/library version mismatch`",
)
TOO_OLD = Kind(
    "driver.too_old",
    ERROR,
    "the driver is older than the CUDA release of the image or wheel needs",
    "CUDA refuses to initialise (`CUDA driver version is insufficient for CUDA runtime version`).",
    f"upgrade the driver, or take {LAST_CUDA_12_TAG}, the last CUDA 12 tag",
    "NVIDIA's CUDA release notes; sgl-project/sglang#8430",
)
UNATTENDED = Kind(
    "driver.unattended_upgrade",
    WARNING,
    "automatic upgrades may replace the driver under running servers",
    "The library on disk is then newer than the module in the kernel: the next start of any server fails, at night "
    "and on every host at once.",
    "hold the driver's packages, and upgrade them with the playbook serving.sglang.maintain",
    "public reports of `Driver/library version mismatch` after unattended-upgrades",
)


def wants_cuda(readings: HostReadings) -> bool:
    """Whether any of this matters here: an instance on CUDA; where none is declared, a card or a driver."""
    if readings.wanted:
        return any(each.on_cuda for each in readings.wanted)
    if not readings.cards_matter:
        return False
    module, pci = readings.kernel_module, readings.pci
    no_module = not isinstance(module, Unknown) and module.version is None
    no_card = not isinstance(pci, Unknown) and not pci_cards(pci)
    return not (no_module and no_card)


def not_wanted(readings: HostReadings) -> str:
    if readings.wanted:
        return "every instance of this host is declared with device: cpu"
    if not readings.cards_matter:
        return "no instance is declared for this host"
    return "no NVIDIA card on the PCI bus, no driver, and no instance is declared"


def loaded_version(readings: HostReadings) -> str:
    """The driver's version in the kernel. Raises where it is unknown or none is loaded."""
    version = known(readings.kernel_module).version
    if version is None:
        fix = "install NVIDIA's driver or load its module, or declare `device: cpu` for the instances of this host"
        raise CouldNotTell("no NVIDIA driver is loaded", fix)
    return version


def _family(readings: HostReadings) -> str:
    distribution = readings.distribution
    return "" if isinstance(distribution, Unknown) else distribution.family


def by_family(readings: HostReadings, debian: str, rhel: str) -> str:
    """The line that fits the distribution; both, where it is not known."""
    family = _family(readings)
    if family == "debian":
        return debian
    if family == "rhel":
        return rhel
    return f"Debian, Ubuntu: {debian}; RHEL: {rhel}"


@check(MISSING)
def driver_missing(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield MISSING.fine("no driver is needed", not_wanted(readings))
        return
    module = known(readings.kernel_module)
    if module.version is not None:
        yield MISSING.fine(f"driver {module.version} is loaded", f"{module.source}: {module.version}")
        return
    pci = readings.pci
    if isinstance(pci, Unknown):
        seen = f"the PCI bus could not be read: {pci.reason}"
    else:
        cards = pci_cards(pci)
        seen = f"{len(cards)} NVIDIA cards on the PCI bus"
        if cards:
            seen += ": " + ", ".join(f"{card.address} ({card.device})" for card in cards)
    names = ", ".join(f"'{each.name}'" for each in readings.wanted if each.on_cuda) or "none declared"
    library = readings.library
    if not isinstance(library, Unknown) and library.version is not None:
        yield MISSING.found(
            f"NVIDIA's driver {library.version} is installed and its module is not loaded; "
            f"instances that want CUDA: {names}",
            f"{module.source}; library: {library.path}; {seen}",
            "`modprobe nvidia`; if that fails, is it built for this kernel (`dkms status`, `uname -r`), and does "
            "secure boot refuse it (`mokutil --sb-state`)?",
        )
        return
    yield MISSING.found(
        f"no NVIDIA driver is loaded; instances that want CUDA: {names}",
        f"{module.source}; {seen}",
        by_family(
            readings,
            "`apt install nvidia-driver-580-server-open` (Ubuntu) or `apt install nvidia-open` (NVIDIA's repository), "
            "then reboot",
            "`dnf install nvidia-open` (NVIDIA's repository), then reboot",
        ),
    )


@check(NOUVEAU)
def nouveau_loaded(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield NOUVEAU.fine("no driver is needed", not_wanted(readings))
        return
    module = known(readings.kernel_module)
    if not module.nouveau:
        return
    blacklist = "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/nouveau-off.conf"
    yield NOUVEAU.found(
        "nouveau is loaded" + (f" beside NVIDIA's {module.version}" if module.version else ""),
        "/sys/module/nouveau is there",
        by_family(
            readings,
            f"`{blacklist} && update-initramfs -u && reboot`",
            f"`{blacklist} && dracut --force && reboot`",
        ),
        severity=WARNING if module.version else ERROR,
    )


@check(MISMATCH)
def library_mismatch(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield MISMATCH.fine("no driver is needed", not_wanted(readings))
        return
    loaded = loaded_version(readings)
    library = known(readings.library)
    if library.version is None:
        yield MISMATCH.found(
            f"driver {loaded} is loaded and its library is not installed",
            "the loader finds no libnvidia-ml.so.1",
            by_family(
                readings,
                f"`apt install libnvidia-compute-{loaded.partition('.')[0]}-server` (Ubuntu), of version {loaded}",
                f"dnf install nvidia-driver-cuda-libs-{loaded}",
            ),
        )
        return
    evidence = f"kernel: {loaded} ({known(readings.kernel_module).source}); library: {library.version} ({library.path})"
    if numbers(library.version) == numbers(loaded):
        yield MISMATCH.fine(f"kernel and library are both {loaded}", evidence)
        return
    yield MISMATCH.found(
        f"the kernel runs driver {loaded}, its library is {library.version}",
        evidence,
        "drain and stop the instances, then reboot; or, with nothing on the cards, "
        "`rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`",
    )


def release_of(wanted: Wanted) -> tuple[int, ...]:
    """The version of SGLang that will run: the image's tag says it, or what was declared."""
    return numbers(_tag_of(wanted.image).release or wanted.version)[:3]


def _tag_of(image: str) -> TagFacts:
    """What the tag of an image says, also of a name that is written in a way which nobody could pull."""
    try:
        return read_tag(parse_reference(image).tag)
    except NotAReference:
        return read_tag(image.partition("@")[0].rpartition(":")[2])


def cuda_of(wanted: Wanted) -> tuple[int, str]:
    """CUDA's major that an instance brings along, and how that is known."""
    if wanted.cuda:
        words = numbers(wanted.cuda)
        if words:
            return words[0], f"declared: cuda {wanted.cuda}"
    said = _tag_of(wanted.image).cuda or read_tag(wanted.version.replace("+", "-")).cuda
    if said:
        return numbers(said)[0], f"{wanted.image or wanted.version} names CUDA {said}"
    release = release_of(wanted)
    pins = PINS.get(".".join(map(str, release)), {})
    if pins.get("cuda_major"):
        return int(pins["cuda_major"]), f"SGLang {'.'.join(map(str, release))} requires CUDA {pins['cuda_major']}"
    what = wanted.image or f"SGLang {wanted.version}"
    if not release:
        raise CouldNotTell(
            f"instance '{wanted.name}': {what or 'neither image nor version'} does not tell CUDA's release"
        )
    if release > LAST_CUDA_12:
        return 13, f"{what}: SGLang after {'.'.join(map(str, LAST_CUDA_12))} is made for CUDA 13"
    raise CouldNotTell(
        f"instance '{wanted.name}': {what} was made for CUDA 12 and for 13, and does not say for which: "
        "declare its `cuda`, or a tag with -cu129 or -cu130"
    )


@check(TOO_OLD)
def driver_too_old(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield TOO_OLD.fine("no driver is needed", not_wanted(readings))
        return
    loaded = loaded_version(readings)
    for wanted in readings.wanted:
        if wanted.on_cuda:
            try:
                yield _old_for(readings, wanted, loaded)
            except CouldNotTell as error:
                yield Finding(
                    TOO_OLD.id,
                    UNKNOWN,
                    f"could not tell whether driver {loaded} is new enough for instance '{wanted.name}'",
                    str(error),
                    "declare `cuda` for the instance",
                )


def _old_for(readings: HostReadings, wanted: Wanted, loaded: str) -> Finding:
    major, why = cuda_of(wanted)
    oldest = MINIMUM_DRIVER.get(major)
    if oldest is None:
        raise CouldNotTell(f"the oldest driver for CUDA {major} is not known here ({why})")
    evidence = f"driver {loaded}; {why}; CUDA {major} needs {oldest} or newer"
    if numbers(loaded) >= numbers(oldest):
        return TOO_OLD.fine(f"driver {loaded} runs CUDA {major} of instance '{wanted.name}'", evidence)
    branch = oldest.partition(".")[0]
    what = wanted.image or f"SGLang {wanted.version}"
    summary = f"driver {loaded} is too old for {what}: CUDA {major} needs driver {branch} or newer"
    upgrade = by_family(
        readings,
        f"`apt install nvidia-driver-{branch}-server-open` (Ubuntu) or `apt install nvidia-open` (NVIDIA's "
        "repository), then reboot",
        "`dnf install nvidia-open` (NVIDIA's repository), then reboot",
    )
    fix = f"upgrade the driver: {upgrade}"
    if major >= 13:
        fix += f"; or take lmsysorg/sglang:{LAST_CUDA_12_TAG}, the last CUDA 12 tag"
        fix += ", unless the image carries CUDA's compatibility library for this driver branch and card class"
        if wanted.cuda_compat is None:
            fix += " (then declare cuda_compat: true)"
    if not wanted.cuda_compat:
        return TOO_OLD.found(summary, evidence, fix)
    return _with_compatibility(readings, summary, evidence, fix)


def _with_compatibility(readings: HostReadings, summary: str, evidence: str, fix: str) -> Finding:
    """The image carries the library: it helps data-centre cards, and those alone."""
    cards = known(readings.gpus).cards
    if not cards or not all(card.name for card in cards):
        raise CouldNotTell(f"{summary}; its compatibility library depends on the cards, whose names were not read")
    others = [card.name for card in cards if not _DATA_CENTRE.search(card.name)]
    if others:
        return TOO_OLD.found(
            f"{summary}, and its compatibility library does not work on {', '.join(sorted(set(others)))}",
            f"{evidence}; NVIDIA supports that library on data-centre cards alone",
            fix,
        )
    return TOO_OLD.found(
        f"{summary}; it starts only through CUDA's compatibility library",
        f"{evidence}; declared cuda_compat: true; cards: {', '.join(sorted({card.name for card in cards}))}",
        "see that the branch is on the list of NVIDIA's CUDA compatibility guide, better upgrade the driver",
        severity=WARNING,
    )


@check(UNATTENDED)
def unattended_upgrade(readings: HostReadings) -> Iterable[Finding]:
    if not wants_cuda(readings):
        yield UNATTENDED.fine("no driver is needed", not_wanted(readings))
        return
    upgrades = known(readings.upgrades)
    if not upgrades.enabled:
        yield UNATTENDED.fine("no automatic upgrades", f"{upgrades.tool}: {upgrades.evidence}")
        return
    exposed = upgrades.exposed
    if not exposed:
        kept = "held or excluded" if upgrades.packages else "no package of the driver is installed"
        yield UNATTENDED.fine(f"automatic upgrades leave the driver alone: {kept}", upgrades.evidence)
        return
    shown = ", ".join(exposed[:12]) + (f" and {len(exposed) - 12} more" if len(exposed) > 12 else "")
    hold = "apt-mark hold " + " ".join(exposed)
    lock = "dnf versionlock add " + " ".join(exposed)
    yield UNATTENDED.found(
        f"{upgrades.tool} is on and {len(exposed)} packages of the driver are neither held nor excluded",
        f"{upgrades.evidence}; {shown}",
        lock if upgrades.tool == "dnf-automatic" else hold,
        severity=WARNING,
    )


CHECKS = (
    driver_missing,
    nouveau_loaded,
    library_mismatch,
    driver_too_old,
    unattended_upgrade,
)
