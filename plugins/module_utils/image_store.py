# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks a registry through skopeo or docker, and a host's own storage through docker or podman, what a tag is.

There is no client of our own: proxies, certificates, mirrors and credentials are the engine's, as for its pulls.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from .checks.reading import CouldNotTell, Output, run_command
from .checks.wanted import podman_root
from .errors import EngineError
from .image_manifest import (
    Entry,
    Garbled,
    ImageFacts,
    Layer,
    Platform,
    read_config,
    read_described,
    read_layers,
    read_local,
    read_manifest,
)
from .image_reference import ImageReference

AUTO, SKOPEO, DOCKER, PODMAN = "auto", "skopeo", "docker", "podman"
REGISTRY, LOCAL = "registry", "local"
INSTALL_SKOPEO = "install skopeo: apt-get install skopeo (Debian, Ubuntu) or dnf install skopeo (RHEL)"

Run = Callable[[Sequence[str], float], Output]
# Not `str | None`: the name is evaluated when the module is imported, and hosts have Python 3.9.
Which = Callable[[str], Optional[str]]


@dataclass(frozen=True)
class Asking:
    """How an image is asked for. Without an authfile the tool takes its own credentials."""

    engine: str = AUTO
    source: str = REGISTRY
    authfile: str = ""
    tls_verify: bool = True
    timeout_s: float = 60
    run: Run = run_command
    which: Which = shutil.which


@dataclass(frozen=True)
class Present:
    """What a tag is at present. `digest` is the one to pin: docker and podman pull by it on every platform it has."""

    digest: str
    tool: str
    index: bool | None = None
    entries: tuple[Entry, ...] = ()
    facts: ImageFacts = field(default_factory=ImageFacts)

    @property
    def platforms(self) -> tuple[Platform, ...]:
        if self.entries:
            return tuple(entry.platform for entry in self.entries)
        return (self.facts.platform,) if self.facts.platform else ()


def look(reference: ImageReference, asking: Asking, platform: Platform | None = None, expected: str = "") -> Present:
    """What the tag of a reference is now. Raises EngineError, each with what to do.

    `platform` is the one that the image's facts are read for. `expected` is a digest that may be the right one, which
    decides where a host's storage knows several.
    """
    if asking.authfile and not os.path.isfile(asking.authfile):
        raise EngineError(
            "image.unauthorized", f"the authfile {asking.authfile} is not there. Next step: {_login(reference, asking)}"
        )
    if asking.source == LOCAL:
        return _local(reference.tagged, asking, expected)
    ask = _asker(reference, asking)
    if ask is None:
        return _by_docker_manifest(reference, asking, _docker(reference, asking))
    # Two questions: the second is asked by the digest, so that a tag that moves in between mixes nothing, and what
    # was computed here is known to be what the registry serves.
    return _from_manifest(reference, ask.raw(str(reference.tagged)), ask.tool, platform, ask.configuration)


# --- the registry ---------------------------------------------------------------------------------------------------


def _tool_for_registry(asking: Asking) -> str:
    if asking.engine == PODMAN:
        raise EngineError(
            "image.tool_missing",
            "podman does not tell which digest a tag has in a registry without pulling the image: `podman manifest "
            f"inspect` shows it rewritten. Next step: {INSTALL_SKOPEO}, which uses podman's credentials; or pull the "
            "image and ask with source: local",
        )
    tools = (SKOPEO, DOCKER) if asking.engine == AUTO else (asking.engine,)
    for tool in tools:
        if asking.which(tool):
            return tool
    raise EngineError(
        "image.tool_missing",
        f"{' and '.join(tools)} {'are' if len(tools) > 1 else 'is'} not installed, and nothing else is used to ask a "
        f"registry. Next step: {INSTALL_SKOPEO}; or delegate the task to a host that has it",
    )


def weigh(reference: ImageReference, asking: Asking, platform: Platform) -> tuple[Layer, ...]:
    """The layers that a pull by this reference's digest brings to a host of this platform. Raises EngineError."""
    ask = _asker(reference, asking)
    if ask is None:
        raise EngineError(
            "image.tool_missing",
            f"docker without its plugin buildx does not tell the size of {reference.tagged}. Next step: "
            f"{INSTALL_SKOPEO}",
        )
    try:
        raw = ask.raw(reference.by_digest)
        manifest = read_manifest(raw)
        entry = next((each for each in manifest.entries if each.platform.serves(platform)), None)
        if manifest.index and entry is None:
            made = ", ".join(str(each.platform) for each in manifest.entries)
            raise EngineError(
                "image.platform", f"{reference} is made for {made or 'no platform'}, and this host is {platform}"
            )
        if entry is None:
            return read_layers(raw, ask.configuration(reference.by_digest, None))
        of_platform = reference.pinned(entry.digest).by_digest
        return read_layers(ask.raw(of_platform), ask.configuration(of_platform, entry.platform))
    except Garbled as error:
        raise _garbled(reference, str(error)) from None


@dataclass(frozen=True)
class _Asker:
    """How a tool gives the very bytes of a manifest, and the configuration of an image for a platform."""

    tool: str
    raw: Callable[[str], str]
    configuration: Callable[[str, Platform | None], str]


def _asker(reference: ImageReference, asking: Asking) -> _Asker | None:
    """None where docker alone is there, which gives neither."""
    if _tool_for_registry(asking) == SKOPEO:
        return _skopeo(reference, asking)
    docker = _docker(reference, asking)
    # imagetools has no switch for a registry without TLS.
    if asking.tls_verify and asking.run([*docker, "buildx", "version"], asking.timeout_s).code == 0:
        return _buildx(reference, asking, docker)
    return None


def _skopeo(reference: ImageReference, asking: Asking) -> _Asker:
    options = ["inspect", f"--tls-verify={'true' if asking.tls_verify else 'false'}"]
    if asking.authfile:
        options.append(f"--authfile={asking.authfile}")

    def ask(what: str, where: str, override: Sequence[str] = ()) -> str:
        return _answer([SKOPEO, *override, *options, what, f"docker://{where}"], reference, asking)

    def configuration(by_digest: str, chosen: Platform | None) -> str:
        override = []
        if chosen:
            override = [f"--override-os={chosen.os}", f"--override-arch={chosen.architecture}"]
            override += [f"--override-variant={chosen.variant}"] if chosen.variant else []
        return ask("--config", by_digest, override)

    return _Asker(SKOPEO, lambda where: ask("--raw", where), configuration)


def _buildx(reference: ImageReference, asking: Asking, docker: Sequence[str]) -> _Asker:
    inspect = [*docker, "buildx", "imagetools", "inspect"]

    def configuration(by_digest: str, chosen: Platform | None) -> str:
        pick = f'{{{{json (index .Image "{chosen}")}}}}' if chosen else "{{json .Image}}"
        return _answer([*inspect, "--format", pick, by_digest], reference, asking)

    return _Asker("docker buildx", lambda where: _answer([*inspect, "--raw", where], reference, asking), configuration)


def _from_manifest(
    reference: ImageReference,
    raw: str,
    tool: str,
    platform: Platform | None,
    configuration: Callable[[str, Platform | None], str],
) -> Present:
    try:
        manifest = read_manifest(raw)
        chosen = _choose(manifest.entries, platform)
        if manifest.index and chosen is None:
            # There is no such platform, which is for the caller to judge; another one's facts would mislead.
            return Present(manifest.digest, tool, True, manifest.entries)
        facts = read_config(configuration(reference.pinned(manifest.digest).by_digest, chosen))
    except Garbled as error:
        raise _garbled(reference, str(error)) from None
    return Present(manifest.digest, tool, manifest.index, manifest.entries, facts)


def _choose(entries: Sequence[Entry], platform: Platform | None) -> Platform | None:
    if platform is None:
        # Which one is read matters little without a wanted one; the same each time.
        platform = Platform("linux", "amd64")
        return next((each.platform for each in entries if each.platform.serves(platform)), None) or (
            entries[0].platform if entries else None
        )
    return next((each.platform for each in entries if each.platform.serves(platform)), None)


def _by_docker_manifest(reference: ImageReference, asking: Asking, docker: Sequence[str]) -> Present:
    insecure = [] if asking.tls_verify else ["--insecure"]
    words = [*docker, "manifest", "inspect", *insecure, "--verbose", str(reference.tagged)]
    try:
        described = read_described(_answer(words, reference, asking))
    except Garbled as error:
        raise _garbled(reference, str(error)) from None
    if described.index:
        raise EngineError(
            "image.tool_missing",
            f"{reference.tagged} is for several platforms, and docker without buildx tells the digest of each and not "
            f"that of the whole, which alone is right on every host. Next step: {INSTALL_SKOPEO}, or docker's plugin "
            "buildx",
            platforms={str(entry.platform): entry.digest for entry in described.entries},
        )
    entry = described.entries[0]
    return Present(entry.digest, "docker manifest", False, (), ImageFacts(entry.platform))


def _docker(reference: ImageReference, asking: Asking) -> list[str]:
    if not asking.authfile:
        return [DOCKER]
    directory, name = os.path.split(os.path.abspath(asking.authfile))
    if name != "config.json":
        raise EngineError(
            "image.unauthorized",
            f"docker reads credentials from a file with the name config.json alone, not from {asking.authfile}. Next "
            f"step: docker --config DIRECTORY login {reference.registry}, and authfile: DIRECTORY/config.json",
        )
    return [DOCKER, "--config", directory]


# --- the host's own storage -----------------------------------------------------------------------------------------


def _local(reference: ImageReference, asking: Asking, expected: str) -> Present:
    if asking.engine == SKOPEO:
        raise EngineError(
            "image.tool_missing",
            "skopeo asks registries, not the storage of a host. Next step: engine: docker or podman with source: local",
        )
    engines = (DOCKER, PODMAN) if asking.engine == AUTO else (asking.engine,)
    there = [engine for engine in engines if asking.which(engine)]
    if not there:
        raise EngineError(
            "image.tool_missing",
            f"{' and '.join(engines)} {'are' if len(engines) > 1 else 'is'} not installed on this host, so no image is "
            "stored. Next step: ask where the engine is, or with source: registry",
        )
    problems: list[EngineError] = []
    for engine in there:
        try:
            return _stored(reference, asking, engine, expected)
        except EngineError as error:
            problems.append(error)
    # Where one engine could not be asked at all and the other has nothing, the first is the better reason.
    raise next((each for each in problems if each.kind != "image.no_such_tag"), problems[0])


def _stored(reference: ImageReference, asking: Asking, engine: str, expected: str) -> Present:
    if engine == PODMAN and os.geteuid() == 0 and not os.path.isdir(podman_root()):
        # podman would make its storage when asked what is in it, and this only looks.
        raise _not_stored(reference, engine, f"{podman_root()} is not there")
    words = [engine, "image", "inspect", str(reference)]
    try:
        image = read_local(_answer(words, reference, asking, stored_by=engine))
    except Garbled as error:
        raise _garbled(reference, str(error), engine) from None
    digests = image.digests_of(reference.name)
    if not digests:
        raise EngineError(
            "image.no_digest",
            f"{reference} was built or loaded on this host: {engine} knows no digest that it can be pulled by. Next "
            "step: push it to a registry and pull it, or ask with source: registry",
        )
    if expected in digests:
        return Present(expected, engine, None, (), image.facts)
    if len(digests) > 1:
        pinned = f", and none is the pinned {expected}: the tag was moved" if expected else ""
        raise EngineError(
            "image.moved" if expected else "image.ambiguous",
            f"{engine} knows {reference} by {len(digests)} digests ({', '.join(digests)}){pinned}. Which one is the "
            "tag's cannot be seen here: podman keeps the platform's own beside that of the index. Next step: ask with "
            "source: registry, or give the image with the digest to have it checked",
            digests=list(digests),
        )
    return Present(digests[0], engine, None, (), image.facts)


# --- answers --------------------------------------------------------------------------------------------------------


def _answer(words: Sequence[str], reference: ImageReference, asking: Asking, stored_by: str = "") -> str:
    try:
        output = asking.run(words, asking.timeout_s)
    except CouldNotTell as error:
        where = stored_by or reference.registry
        raise EngineError(
            "image.unreachable",
            f"{where} could not be asked for {reference.tagged}: {error}. Next step: run it by hand to see where it "
            "hangs, or give it more time with timeout_s",
        ) from None
    if output.code == 0:
        return output.stdout
    raise _classified(output, words, reference, asking, stored_by)


def _said(output: Output) -> str:
    """The tool's own message, without the wrapping of its log."""
    wrapped = re.search(r'msg="((?:[^"\\]|\\.)*)"\s*$', output.said)
    text = wrapped[1].replace('\\"', '"') if wrapped else re.sub(r"^(?:FATA\[\d+\]|ERROR:|Error:)\s*", "", output.said)
    return text[:400].rstrip(".")


@dataclass(frozen=True)
class _Answered:
    """What a tool's complaint means. The first row whose pattern is found counts."""

    pattern: str
    kind: str
    meaning: str
    way: str


# The messages are skopeo's (containers/image), docker's and podman's; they were seen in real runs against a registry,
# those of Docker Hub (denied, toomanyrequests) in public reports.
_TABLE = (
    _Answered(
        r"docker daemon|docker\.sock|docker api",
        "image.engine",
        "docker's daemon could not be asked",
        "start it (systemctl start docker.service), or run with become: true",
    ),
    _Answered(
        r"toomanyrequests|rate limit",
        "image.rate_limited",
        "the registry {registry} takes no more requests from here for now",
        "log in, which raises the limit: {login}; or wait",
    ),
    _Answered(
        r"server gave http response to https client|first record does not look like a tls handshake",
        "image.unreachable",
        "the registry {registry} speaks HTTP without TLS",
        "give it a certificate; or, for a test registry, tls_verify: false",
    ),
    _Answered(
        r"x509|certificate",
        "image.unreachable",
        "the certificate of the registry {registry} is not trusted here",
        "put its authority's certificate at /etc/docker/certs.d/{registry}/ca.crt, which all engines read",
    ),
    _Answered(
        r"unauthorized|authentication required|denied|no basic auth credentials|invalid username/password"
        r"|\b40[13]\b|forbidden",
        "image.unauthorized",
        "the registry {registry} does not let these credentials read {name}",
        "log in: {login}. Docker Hub says the same of a name that does not exist",
    ),
    _Answered(
        r"invalid status code from registry 4\d\d|invalid character '<'",
        "image.garbled",
        "what answers at {registry} is not a registry",
        "check host and port of the image's name",
    ),
    _Answered(
        r"connection refused|no such host|timeout|timed out|deadline exceeded|unreachable|no route to host|\beof\b"
        r"|connection reset|server misbehaving|broken pipe|\b5\d\d\b|proxyconnect|temporary failure",
        "image.unreachable",
        "the registry {registry} does not answer",
        "check its name, the network and the proxy from this host (curl -I https://{registry}/v2/, with http:// where "
        "it has no TLS)",
    ),
    _Answered(
        r"manifest unknown|manifest_unknown|no such manifest|name unknown|name_unknown|repository name not known"
        r"|not found|no such image|image not known",
        "image.no_such_tag",
        "there is no {reference} in the registry",
        "look at what is there: skopeo list-tags docker://{name}",
    ),
)


def way_out(complaint: str, reference: ImageReference, authfile: str = "") -> str:
    """What to do about a complaint of an engine that could not pull; empty where it is not known here."""
    if "no space left on device" in complaint.lower():
        return "make room on the disk of the engine's storage, then run again"
    row = next((row for row in _TABLE if re.search(row.pattern, complaint.lower())), None)
    return row.way.format(**_names(reference, Asking(authfile=authfile))) if row else ""


def _names(reference: ImageReference, asking: Asking) -> dict[str, str]:
    return {
        "registry": reference.registry,
        "name": reference.name,
        "reference": str(reference.tagged),
        "login": _login(reference, asking),
    }


def _classified(
    output: Output, words: Sequence[str], reference: ImageReference, asking: Asking, stored_by: str
) -> EngineError:
    said = _said(output)
    complaint = (output.stderr or output.stdout).lower()
    row = next((row for row in _TABLE if re.search(row.pattern, complaint)), None)
    if row is None:
        return _garbled(reference, f"{words[0]} ended with status {output.code}: {said}", stored_by)
    if stored_by and row.kind == "image.no_such_tag":
        return _not_stored(reference, stored_by, said)
    names = _names(reference, asking)
    way = row.way.format(**names)
    if "manifest" in words and row.kind == "image.no_such_tag":
        # docker says the same of what it could not speak to with TLS, and before 23 of what is in OCI's format.
        way += "; from `docker manifest` it may also mean a registry without TLS (tls_verify: false) or an old docker"
    return EngineError(row.kind, f"{row.meaning.format(**names)}: {said}. Next step: {way}", said=said)


def _not_stored(reference: ImageReference, engine: str, why: str) -> EngineError:
    return EngineError(
        "image.no_such_tag",
        f"{reference.tagged} is not in the storage of {engine} on this host ({why}). Next step: {engine} pull "
        f"{reference.tagged}, or ask with source: registry",
    )


def _login(reference: ImageReference, asking: Asking) -> str:
    if asking.engine == DOCKER:
        return f"docker login {reference.registry}"
    where = f" --authfile {asking.authfile}" if asking.authfile else ""
    return f"skopeo login{where} {reference.registry}"


def _garbled(reference: ImageReference, what: str, stored_by: str = "") -> EngineError:
    where = stored_by or f"the registry {reference.registry}"
    return EngineError(
        "image.garbled",
        f"{where} gave no usable answer for {reference.tagged}: {what}. Next step: check that the name is that of a "
        "registry and of an image, and that no proxy answers in its place",
    )
