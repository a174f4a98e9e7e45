# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with engines, toolkit, CDI and running containers. Rules only: they judge and touch nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..finding import ERROR, UNKNOWN, WARNING, Finding
from ..image_fit import misfit_of_platform
from ..image_manifest import Platform, read_platform
from ..image_reference import NotAReference, parse_reference
from .cdi_readings import KIND_OF_CARDS, CdiSpec
from .check import Check, Kind, check
from .container_declared import DECLARED_CHECKS
from .container_readings import DOCKER, PODMAN, Containers, Engine, ImageConfig, Running, names_cards
from .container_versions import (
    CDI_FROM,
    QUADLETS_FROM,
    SOURCE_CDI_FROM,
    WITHOUT_GIDS,
    Version,
    is_newest,
    pairs,
    parse_version,
    understands,
    written,
)
from .reading import CouldNotTell, Unknown, known

GENERATE = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
INSTALL_TOOLKIT = (
    "`apt-get install nvidia-container-toolkit` (Debian, Ubuntu) or `dnf install nvidia-container-toolkit` (RHEL), "
    "from NVIDIA's own repository"
)

RUNTIME_MISSING = Kind(
    "container.runtime_missing",
    ERROR,
    "the container engine of a declared instance is not there",
    "The instance's unit cannot start its container.",
    "install it: `apt-get install podman`, or `dnf install podman`; docker as its makers describe",
    "the program is looked for on the PATH",
)


def _named(containers: Containers, engine: str) -> str:
    return ", ".join(server.name for server in containers.of(engine))


@check(RUNTIME_MISSING)
def runtime_missing(containers: Containers) -> Iterator[Finding]:
    for engine in containers.engines:
        if not known(engine.installed):
            yield RUNTIME_MISSING.found(
                f"{engine.name} is not installed, and {_named(containers, engine.name)} need it",
                f"no program {engine.name} on the PATH",
                f"`apt-get install {'docker.io' if engine.name == DOCKER else PODMAN}` (Debian, Ubuntu), or "
                f"`dnf install {'docker-ce' if engine.name == DOCKER else PODMAN}`",
            )


DAEMON = Kind(
    "docker.daemon_unreachable",
    ERROR,
    "docker is installed and its daemon does not answer",
    "No container can be started, and nothing of docker can be checked.",
    "start the daemon and see why it did not run",
    "docker info",
)


@check(DAEMON)
def daemon_unreachable(containers: Containers) -> Iterator[Finding]:
    docker = containers.docker
    if docker.problem:
        denied = "permission denied" in docker.problem.lower()
        yield DAEMON.found(
            "docker's daemon does not answer" if not denied else "docker's daemon may not be asked by this user",
            docker.problem,
            "run the preflight with become: true"
            if denied
            else "`systemctl start docker.service`; why it does not run: `journalctl -u docker.service -n 50`",
        )


def _version(engine: Engine) -> Version:
    text = known(engine.version)
    version = parse_version(text)
    if version is None:
        raise CouldNotTell(f"{engine.name} says that its version is {text!r}")
    return version


def _there(containers: Containers, name: str) -> Engine | None:
    """An engine that is declared, or None. Of one that is not installed nothing can be told."""
    if not containers.of(name):
        return None
    engine = containers.engine(name)
    if not known(engine.installed):
        raise CouldNotTell(f"{name} is not installed")
    return engine


def _uses(containers: Containers) -> list[Engine]:
    """The declared engines that are there."""
    there = [engine for engine in containers.engines if known(engine.installed)]
    if not there:
        raise CouldNotTell(f"not installed: {', '.join(engine.name for engine in containers.engines)}")
    return there


TOO_OLD = Kind(
    "podman.too_old",
    ERROR,
    "podman is too old for cards or for Quadlets",
    'CDI came with podman 4.1: an older one takes "nvidia.com/gpu=0" for a path and says "no such file or directory". '
    "Quadlets, which the units of containers are, came with 4.4: without them the unit does not exist.",
    "install a newer podman, or declare another runtime",
    SOURCE_CDI_FROM,
)


@check(TOO_OLD)
def podman_too_old(containers: Containers) -> Iterator[Finding]:
    engine = _there(containers, PODMAN)
    if engine is None:
        return
    version = _version(engine)
    if version >= QUADLETS_FROM:
        return
    lacks = f"quadlets need podman {written(QUADLETS_FROM)}"
    if version < CDI_FROM[PODMAN] and any(server.needs_cards for server in containers.of(PODMAN)):
        lacks = f"CDI needs podman {written(CDI_FROM[PODMAN])}, quadlets {written(QUADLETS_FROM)}"
    yield TOO_OLD.found(
        f"podman {known(engine.version)} is too old for {_named(containers, PODMAN)}: {lacks}",
        f"podman version: {known(engine.version)}",
        "install podman 4.4 or newer, better 5.x (Debian 13, Ubuntu 25.04, RHEL 9.5), or declare runtime: native",
    )


TOOLKIT = Kind(
    "container.toolkit_missing",
    ERROR,
    "NVIDIA's container toolkit is not there",
    "Without it no engine gives a card to a container: it brings the hook of docker and writes the CDI specification.",
    INSTALL_TOOLKIT,
    "nvidia-ctk --version",
)


@check(TOOLKIT)
def toolkit_missing(containers: Containers) -> Iterator[Finding]:
    wanting = [server.name for server in containers.servers if server.needs_cards]
    if not wanting:
        return
    toolkit = known(containers.toolkit)
    if not toolkit.installed:
        yield TOOLKIT.found(
            f"NVIDIA's container toolkit is not installed, and {', '.join(wanting)} need cards",
            "no program nvidia-ctk on the PATH",
            INSTALL_TOOLKIT,
        )


def _card_specs(containers: Containers) -> list[tuple[str, CdiSpec]]:
    """The readable specifications of cards, each with its path; none where no declared engine looks at them."""
    if all(_by_hook(containers, engine) for engine in _uses(containers)):
        return []
    files = known(containers.cdi).of_cards()
    return [(file.path, file.spec) for file in files if not isinstance(file.spec, Unknown)]


def _highest(engine: Engine) -> tuple[str, bool, bool]:
    """The highest version of the format that an engine reads, whether that is sure, and whether newer may read more."""
    row = understands(engine.name, _version(engine))
    if row is None:
        return "", True, False
    return written(row.highest), row.sure, is_newest(row)


def _refuses(engine: Engine, spec: CdiSpec) -> bool:
    row = understands(engine.name, _version(engine))
    return row is not None and spec.needs > row.highest


PAIR = Kind(
    "container.known_pair",
    ERROR,
    "this toolkit and this engine do not work together",
    "Both are fine by themselves, and no container with a card starts. The error names neither.",
    "change the release of one of them",
    "container_versions.py: PAIRS, each with its public report",
)


@check(PAIR)
def known_pair(containers: Containers) -> Iterator[Finding]:
    toolkit = known(containers.toolkit)
    version = parse_version(toolkit.version)
    if not toolkit.installed:
        return
    if version is None:
        raise CouldNotTell(f"the toolkit says that its version is {toolkit.version!r}")
    for engine in _uses(containers):
        for pair in pairs(version, engine.name, _version(engine)):
            specs = _card_specs(containers)
            if pair.cdi_version and (_by_hook(containers, engine) or not _in_the_way(engine, specs)):
                continue
            yield PAIR.found(
                f"toolkit {toolkit.version} {pair.what}",
                f"nvidia-ctk {toolkit.version}, {engine.name} {known(engine.version)}"
                + "".join(f", {path} is there with cdiVersion {spec.version}" for path, spec in specs)
                + f" ({pair.source})",
                pair.fix,
            )


def _in_the_way(engine: Engine, specs: Sequence[tuple[str, CdiSpec]]) -> bool:
    """A specification that the engine can read, whoever wrote it, makes the pair work."""
    return not specs or any(_refuses(engine, spec) for _path, spec in specs)


def _by_hook(containers: Containers, engine: Engine) -> bool:
    """docker gives cards through its hook, without CDI, where it does not look for specifications."""
    return engine.name == DOCKER and not isinstance(engine.cdi_directories, Unknown) and not engine.cdi_directories


CDI_VERSION = Kind(
    "cdi.version_not_understood",
    ERROR,
    "the engine does not know this version of a CDI specification",
    "It skips the whole file and says that the device is unresolvable; only its debug log has the reason (an unknown "
    "field, an unknown version).",
    f"write one that it knows: `{GENERATE} {WITHOUT_GIDS}`",
    "container_versions.py: UNDERSTANDS; the format's own loader refuses unknown fields",
)


@check(CDI_VERSION)
def version_not_understood(containers: Containers) -> Iterator[Finding]:
    for engine in _uses(containers):
        if _by_hook(containers, engine):
            continue
        for path, spec in _card_specs(containers):
            if not _refuses(engine, spec):
                continue
            highest, sure, newest = _highest(engine)
            severity = UNKNOWN if newest else ERROR if sure else WARNING
            what = "may not know" if severity != ERROR else "does not know"
            yield CDI_VERSION.found(
                f"{engine.name} {known(engine.version)} {what} CDI {written(spec.needs)}, which {path} needs",
                f"{path}: cdiVersion {spec.version}; {engine.name} {known(engine.version)} reads up to {highest}",
                f"nvidia-ctk cdi generate {WITHOUT_GIDS} --output={path}",
                severity,
            )


CDI_MISSING = Kind(
    "cdi.missing",
    ERROR,
    "there is no CDI specification of the cards",
    "podman has no other way to give a card to a container.",
    f"write it: `{GENERATE}`",
    "podman-run(1), --device; NVIDIA's CDI documentation",
)


def _needs_cdi(containers: Containers) -> list[str]:
    return [server.name for server in containers.of(PODMAN) if server.needs_cards]


@check(CDI_MISSING)
def cdi_missing(containers: Containers) -> Iterator[Finding]:
    wanting = _needs_cdi(containers)
    if wanting and not known(containers.cdi).of_cards():
        yield CDI_MISSING.found(
            f"no CDI specification names {KIND_OF_CARDS}, and {', '.join(wanting)} need cards",
            f"looked in {' and '.join(known(containers.cdi).directories)}",
            f"`{GENERATE}`; or, with toolkit 1.18 and newer, `systemctl start nvidia-cdi-refresh.service`",
        )


CDI_UNREADABLE = Kind(
    "cdi.unreadable",
    ERROR,
    "a CDI specification cannot be read",
    "An engine skips what it cannot read, and says that the device is unresolvable.",
    f"write it anew: `{GENERATE}`",
    "the format's own loader",
)


@check(CDI_UNREADABLE)
def cdi_unreadable(containers: Containers) -> Iterator[Finding]:
    rootless = any(not isinstance(engine.rootless, Unknown) and engine.rootless for engine in _uses(containers))
    for file in known(containers.cdi).files:
        if isinstance(file.spec, Unknown):
            unread = "PyYAML" in file.spec.reason
            yield CDI_UNREADABLE.found(
                f"{file.path} cannot be read" + (" here" if unread else ""),
                file.spec.reason,
                "install python3-yaml on the host, or write the file as JSON" if unread else f"{GENERATE}",
                UNKNOWN if unread else ERROR,
            )
        elif rootless and not file.everybody:
            yield CDI_UNREADABLE.found(
                f"{file.path} can be read by root alone, and the engine runs as another user",
                f"mode of {file.path}",
                f"chmod a+r {file.path}",
            )


CDI_PATHS = Kind(
    "cdi.stale_paths",
    ERROR,
    "a CDI specification names files that are not there",
    "It was written for another driver or other cards. The container does not start, or starts without a library.",
    f"write it anew: `{GENERATE}`",
    "every hostPath and device node of the specification is looked for",
)


@check(CDI_PATHS)
def cdi_stale_paths(containers: Containers) -> Iterator[Finding]:
    for path, spec in _card_specs(containers):
        if spec.missing:
            yield CDI_PATHS.found(
                f"{path} names {len(spec.missing)} of {len(spec.paths)} files and devices that are not there",
                ", ".join(spec.missing[:5]),
                f"nvidia-ctk cdi generate --output={path}",
            )


CDI_DRIVER = Kind(
    "cdi.stale_driver",
    ERROR,
    "a CDI specification is of another driver than the one that runs",
    "The libraries in the container do not fit the kernel's module: NVML says driver/library version mismatch.",
    f"write it anew: `{GENERATE}`",
    "the release in the names of the driver's libraries, against /proc/driver/nvidia/version",
)


@check(CDI_DRIVER)
def cdi_stale_driver(containers: Containers) -> Iterator[Finding]:
    specs = _card_specs(containers)
    if not any(spec.drivers for _path, spec in specs):
        return
    driver = known(containers.driver)
    for path, spec in specs:
        if spec.drivers and spec.drivers != (driver,):
            yield CDI_DRIVER.found(
                f"{path} is of driver {', '.join(spec.drivers)}, and {driver} is loaded",
                f"/proc/driver/nvidia/version: {driver}; libraries in {path}: {', '.join(spec.drivers)}",
                f"nvidia-ctk cdi generate --output={path}",
            )


CDI_DEVICES = Kind(
    "cdi.devices_differ",
    ERROR,
    "a CDI specification names other cards than the host has",
    "A card that it does not name cannot be given to a container; one that is gone keeps every container that asks for "
    "all cards from starting.",
    f"write it anew: `{GENERATE}`",
    "the UUIDs in the specification, against nvidia-smi -L",
)


@check(CDI_DEVICES)
def cdi_devices_differ(containers: Containers) -> Iterator[Finding]:
    specs = _card_specs(containers)
    if not specs:
        return
    cards = known(containers.cards)
    whole = [card for card in cards if card.startswith("GPU-")]
    for path, spec in specs:
        fix = f"nvidia-ctk cdi generate --output={path}"
        if spec.uuids:
            missing, gone = sorted(set(cards) - spec.uuids), sorted(spec.uuids - set(cards))
            # With cards in parts, a specification names the parts.
            missing = [card for card in missing if card.startswith("MIG-") or len(whole) == len(cards)]
            if missing or gone:
                yield CDI_DEVICES.found(
                    f"{path} does not fit the cards: {len(missing)} are not in it, {len(gone)} of it are gone",
                    "; ".join(
                        part
                        for part in (
                            f"not in it: {', '.join(missing)}" if missing else "",
                            f"gone: {', '.join(gone)}" if gone else "",
                        )
                        if part
                    ),
                    fix,
                )
        elif spec.indices and len(spec.indices) != len(whole):
            yield CDI_DEVICES.found(
                f"{path} names {len(spec.indices)} cards, and the host has {len(whole)}",
                f"devices: {', '.join(spec.devices)}; nvidia-smi -L: {', '.join(whole)}",
                fix,
            )


CDI_TWICE = Kind(
    "cdi.named_twice",
    ERROR,
    "two CDI specifications name the same device",
    "In one directory neither counts, and the device is unresolvable. In two, /var/run/cdi wins, and the one in "
    "/etc/cdi grows old unseen.",
    "remove the one that nothing keeps up to date",
    "the format's documentation; toolkit 1.18 and newer writes /var/run/cdi/nvidia.yaml by itself",
)


@check(CDI_TWICE)
def cdi_named_twice(containers: Containers) -> Iterator[Finding]:
    specs = _card_specs(containers)
    for position, (first, one) in enumerate(specs):
        for second, other in specs[position + 1 :]:
            both = sorted(set(one.devices) & set(other.devices))
            if not both or one.kind != other.kind:
                continue
            same = first.rpartition("/")[0] == second.rpartition("/")[0]
            yield CDI_TWICE.found(
                f"{first} and {second} both name {one.kind}={both[0]}"
                + (f" and {len(both) - 1} more" if len(both) > 1 else ""),
                "in the same directory: neither counts" if same else f"{second} wins",
                f"rm -- {first}",
                ERROR if same else WARNING,
            )


MODE = Kind(
    "container.toolkit_mode",
    WARNING,
    "NVIDIA's runtime is set to a mode that does not fit",
    "csv is for Tegra boards: on a host with a card it gives the container nothing.",
    "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto",
    "/etc/nvidia-container-runtime/config.toml",
)
MODES = ("", "auto", "legacy", "cdi", "jit-cdi", "csv")


@check(MODE)
def toolkit_mode(containers: Containers) -> Iterator[Finding]:
    if not containers.of(DOCKER):
        return
    toolkit = known(containers.toolkit)
    if not toolkit.installed:
        return
    mode = known(toolkit.mode)
    if mode == "csv" or mode not in MODES:
        yield MODE.found(
            f"NVIDIA's runtime has mode {mode!r}",
            f"/etc/nvidia-container-runtime/config.toml: mode = {mode!r}",
            MODE.fix,
        )


DRIVER_OF_GROUPS = Kind(
    "docker.cgroup_driver",
    ERROR,
    "docker manages cgroups itself on a host with cgroup v2",
    "A container then is outside of systemd's tree, and the limits of the instance's slice do not hold for it.",
    '"exec-opts": ["native.cgroupdriver=systemd"] in /etc/docker/daemon.json, then restart docker with all drained',
    "docker-run(1), --cgroup-parent; runc under cgroupfs takes a path, and systemd owns the tree of v2",
)


@check(DRIVER_OF_GROUPS)
def cgroup_driver(containers: Containers) -> Iterator[Finding]:
    if _there(containers, DOCKER) is None:
        return
    driver, version = known(containers.docker.cgroup_driver), known(containers.docker.cgroup_version)
    if driver == "cgroupfs" and version == "2":
        yield DRIVER_OF_GROUPS.found(
            "docker's cgroup driver is cgroupfs on cgroup v2, which is refused: limits of slices would not hold",
            f"docker info: CgroupDriver {driver}, CgroupVersion {version}",
        )


LOST_CARDS = Kind(
    "container.lost_cards",
    ERROR,
    "a running container has lost its cards through a daemon-reload",
    'Whatever opens a card in it from now on fails with "Failed to initialize NVML: Unknown Error". What has its cards '
    "open goes on, so a server may serve until it ends and then not start again.",
    "recreate the container in a drained restart (a rollout), then remove the cause: give cards as CDI devices",
    "NVIDIA/nvidia-container-toolkit#48, #1744",
)
RELOAD = Kind(
    "container.reload_takes_cards",
    WARNING,
    "the next daemon-reload takes the cards away from a container",
    "docker gave the cards behind systemd's back: its unit does not name them, and systemd sets the rules anew at the "
    "next systemctl daemon-reload, which any package may run.",
    "give the cards as CDI devices (--device nvidia.com/gpu=all, docker 25 and newer) in the next rollout",
    "NVIDIA/nvidia-container-toolkit#48; the unit's DeviceAllow in /run/systemd/transient",
)
_DEAD = ("failed to initialize nvml", "unknown error", "no devices were found")


@check(LOST_CARDS, RELOAD)
def cards_of_running(containers: Containers) -> Iterator[Finding]:
    for container in known(containers.running):
        finding = judge_container(container)
        if finding is not None:
            yield finding


def judge_container(container: Running) -> Finding | None:
    """Whether a running container still has its cards, and keeps them at the next daemon-reload."""
    dead = any(word in container.inside.lower() for word in _DEAD)
    had = container.before is not None and names_cards(container.before)
    if isinstance(container.allowed, Unknown):
        # Without rules of systemd there is nothing that a reload sets anew.
        return None
    has = names_cards(container.allowed)
    now = f"DeviceAllow now: {', '.join(container.allowed) or 'nothing'}"
    if dead or (had and not has):
        evidence = [f"before: {', '.join(container.before)}"] if container.before else []
        evidence += [now] + ([f"nvidia-smi inside: {container.inside}"] if container.inside else [])
        return LOST_CARDS.found(
            f"container {container.name} has lost its devices through a reload: it must be recreated in a drained "
            "restart, after which the cause is removed",
            "; ".join(evidence),
            f"`ansible-playbook serving.sglang.rollout`, which drains and recreates {container.name}; then give the "
            "cards as CDI devices (--device nvidia.com/gpu=all) so that the unit names them",
        )
    if not has:
        return RELOAD.found(
            f"systemd does not know of the cards of container {container.name}: the next daemon-reload takes them",
            now,
        )
    return None


LINKS = Kind(
    "container.char_links_missing",
    WARNING,
    "/dev/char has no links to NVIDIA's devices",
    "systemd looks devices up there. runc of some releases gives a container its cards by these names, and without the "
    "links loses them at a daemon-reload.",
    "`nvidia-ctk system create-dev-char-symlinks --create-all`, and a udev rule that runs it at each boot",
    "NVIDIA/nvidia-container-toolkit#48",
)


@check(LINKS)
def char_links_missing(containers: Containers) -> Iterator[Finding]:
    if _there(containers, DOCKER) is None:
        return
    missing = known(containers.nodes_without_link)
    if missing and known(containers.docker.cgroup_driver) == "systemd":
        yield LINKS.found(
            f"/dev/char has no link to {len(missing)} of NVIDIA's devices",
            ", ".join(missing),
            'nvidia-ctk system create-dev-char-symlinks --create-all && echo \'ACTION=="add", '
            'DEVPATH=="/bus/pci/drivers/nvidia", RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks '
            "--create-all\"' > /etc/udev/rules.d/71-nvidia-dev-char.rules",
        )


LIVE_RESTORE = Kind(
    "docker.live_restore",
    WARNING,
    "containers end when docker's daemon is restarted",
    "An upgrade of docker by the system then ends every server of the host, without a drain.",
    '"live-restore": true in /etc/docker/daemon.json, then `systemctl reload docker`',
    "docker's documentation of live-restore",
)


@check(LIVE_RESTORE)
def live_restore(containers: Containers) -> Iterator[Finding]:
    if _there(containers, DOCKER) is None:
        return
    if not known(containers.docker.live_restore):
        yield LIVE_RESTORE.found(
            "live-restore is off: a restart of docker's daemon ends all servers without a drain",
            "docker info: LiveRestoreEnabled false",
        )


LOG = Kind(
    "docker.log_unbounded",
    WARNING,
    "docker keeps logs without a limit",
    "A server logs every request: the log fills the disk that images and containers live on.",
    '"log-driver": "journald" in /etc/docker/daemon.json (for new containers), or log-opts with max-size',
    "docker's documentation of json-file, which has no limit by default",
)


@check(LOG)
def log_unbounded(containers: Containers) -> Iterator[Finding]:
    if _there(containers, DOCKER) is None:
        return
    settings = known(containers.daemon_json)
    if known(containers.docker.log_driver) == "json-file" and "max-size" not in (settings.get("log-opts") or {}):
        yield LOG.found(
            "docker logs to json-file without max-size", "docker info: LoggingDriver json-file; no log-opts.max-size"
        )


ROOTLESS = Kind(
    "container.rootless",
    WARNING,
    "the engine runs without root",
    "The units of instances are the system's: a rootless engine is not below the instance's slice, its limits do not "
    "hold, and the hook of docker cannot set the rules of devices.",
    "use the system's engine",
    "docker info: SecurityOptions; the user that podman runs as",
)


@check(ROOTLESS)
def rootless(containers: Containers) -> Iterator[Finding]:
    for engine in _uses(containers):
        if known(engine.rootless):
            yield ROOTLESS.found(
                f"{engine.name} runs without root, so the limits of the instances' slices do not hold",
                f"{engine.name}: rootless",
                "run the preflight with become: true, and let the system's units start the containers",
            )


IMAGE_PLATFORM = Kind(
    "container.image_platform",
    ERROR,
    "an image is made for another processor",
    "Its programs do not run on this host: the container ends at once with `exec format error`.",
    "declare an image for the host's processor",
    "what the engine says of the image, or else the words of its tag",
)


@check(IMAGE_PLATFORM)
def image_platform(containers: Containers) -> Iterator[Finding]:
    if not containers.machine:
        return
    wanted = read_platform(containers.machine)
    for server in containers.servers:
        try:
            reference = parse_reference(server.image)
        except NotAReference:
            continue
        image = containers.images.get(server.image)
        there: tuple[Platform, ...] = ()
        if isinstance(image, ImageConfig) and image.architecture:
            there = (read_platform(f"{image.system or 'linux'}/{image.architecture}"),)
        misfit = misfit_of_platform(reference, there, wanted)
        if misfit:
            summary, _next, fix = misfit.msg.partition(" Next step: ")
            yield IMAGE_PLATFORM.found(
                f"{server.name} is refused: {summary.rstrip('.')}", f"the host's processor: {containers.machine}", fix
            )


CHECKS: tuple[Check[Containers], ...] = (
    runtime_missing,
    daemon_unreachable,
    podman_too_old,
    toolkit_missing,
    known_pair,
    version_not_understood,
    cdi_missing,
    cdi_unreadable,
    cdi_stale_paths,
    cdi_stale_driver,
    cdi_devices_differ,
    cdi_named_twice,
    toolkit_mode,
    cgroup_driver,
    cards_of_running,
    char_links_missing,
    live_restore,
    log_unbounded,
    rootless,
    image_platform,
    *DECLARED_CHECKS,
)
