# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image is called: the parts of a reference, which ones may be deployed, and what SGLang's tags say."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .errors import EngineError

DOCKER_HUB = "docker.io"
# What docker, podman and skopeo take (grammar and limits: distribution/reference, reference.go and regexp.go).
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY = re.compile(rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_NAME = 255
# A name of 64 of these would be taken for the id of an image.
_ID = re.compile(r"[a-f0-9]{64}")

EXAMPLE = "docker.io/lmsysorg/sglang:v0.5.22@sha256:<64 digits>"


class NotAReference(EngineError):
    """The text names no image. Says the text, what is wrong in it, and how it is written."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__("image.not_a_reference", f"{text!r} names no image: {why}", reference=text)


@dataclass(frozen=True)
class ImageReference:
    """An image by its full name. Its text is the same for docker and for podman, whatever short names they know."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.registry}/{self.repository}"

    @property
    def tagged(self) -> ImageReference:
        """Without the digest: what the tag points to now."""
        return replace(self, digest="")

    @property
    def by_digest(self) -> str:
        """Without the tag, which skopeo refuses beside a digest and the engines overlook."""
        return f"{self.name}@{self.digest}"

    def pinned(self, digest: str) -> ImageReference:
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def parse_reference(text: str) -> ImageReference:
    """The reference that docker means by a text. Raises NotAReference.

    podman completes a name without a registry from its own configuration, which may have none or another: for it the
    full name is written.
    """
    if not text.strip():
        raise NotAReference(text, f"it is empty. Write it as {EXAMPLE}")
    scheme = re.match(r"(?:https?|docker|oci|docker-archive|containers-storage):(?://)?(?=\D)", text)
    if scheme and (scheme[0].endswith("//") or "/" in text):
        raise NotAReference(text, f"leave {scheme[0]!r} out: an engine takes the bare name, as {EXAMPLE}")
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise NotAReference(text, f"malformed digest: {_digest_problem(digest)}. Run image_pin to have the right one")
    name, tag = _split_tag(rest)
    if tag is not None and not _TAG.fullmatch(tag):
        raise NotAReference(
            text, f"the tag {tag!r} is none: letters, digits, '_', '.' and '-', at most 128, not beginning with . or -"
        )
    registry, repository = _split_registry(name)
    if not _REGISTRY.fullmatch(registry):
        raise NotAReference(text, f"the registry {registry!r} is no host name with an optional port")
    if not _REPOSITORY.fullmatch(repository):
        lower = repository.lower()
        way = f"; it is written in lower case: {lower!r}" if _REPOSITORY.fullmatch(lower) else ""
        raise NotAReference(text, f"the repository {repository!r} is none{way}")
    if _ID.fullmatch(name):
        raise NotAReference(text, "64 hexadecimal digits are the id of an image on one host; give its name and tag")
    if len(registry) + 1 + len(repository) > _LONGEST_NAME:
        raise NotAReference(text, f"the name has more than {_LONGEST_NAME} characters")
    return ImageReference(registry, repository, tag or "", digest)


def _split_tag(text: str) -> tuple[str, str | None]:
    # A colon before the last slash is a port's.
    head, colon, tag = text.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (text, None)


def _split_registry(name: str) -> tuple[str, str]:
    """As docker decides it: the first part is a registry when it can be no part of a repository's name."""
    first, slash, rest = name.partition("/")
    if slash and (set(".:") & set(first) or first == "localhost" or first != first.lower()):
        if first in (DOCKER_HUB, "index.docker.io"):
            return DOCKER_HUB, rest if "/" in rest else f"library/{rest}"
        return first, rest
    return DOCKER_HUB, name if slash else f"library/{name}"


def _digest_problem(digest: str) -> str:
    algorithm, colon, value = digest.partition(":")
    if not colon:
        return f"{digest!r} does not say its algorithm; it is sha256: and 64 hexadecimal digits"
    if algorithm != "sha256":
        return f"its algorithm is {algorithm!r}, and registries of images use sha256"
    if re.search(r"[A-F]", value) and re.fullmatch(r"[0-9a-fA-F]{64}", value):
        return "it has capital letters; it is written in small ones"
    if not re.fullmatch(r"[0-9a-f]*", value):
        return f"{value[:80]!r} has other characters than 0-9 and a-f"
    return f"it has {len(value)} digits after sha256:, and 64 are right"


# --- what SGLang's tags say -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TagFacts:
    """What a tag says of its image. Empty where it says nothing; that is no statement about the image."""

    release: str = ""
    cuda: str = ""
    rocm: str = ""
    runtime: bool = False
    architecture: str = ""
    # Words that are not known here, as of images built by others.
    other: tuple[str, ...] = ()


# Rules instead of a list of tags: the release, then words between dashes in any order. They are read from SGLang's own
# workflows (.github/workflows: release-docker.yml, _docker-build-and-publish.yml, release-docker-amd.yml) and from tags
# as people use them: v0.5.6.post2-cu129-amd64-runtime, v0.5.11-cu130-runtime, v0.5.15-cu130, v0.5.19-rocm700-mi35x.
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)(?:-|$)")
_CUDA = re.compile(r"cu(\d{2})(\d)")
_ROCM = re.compile(r"rocm(\d)(\d)(\d+)")
ARCHITECTURES = {"amd64": "amd64", "x86_64": "amd64", "x86": "amd64", "arm64": "arm64", "aarch64": "arm64"}


def read_tag(tag: str) -> TagFacts:
    """What a tag says, as far as it follows SGLang's rules."""
    release = _RELEASE.match(tag)
    words = [word for word in (tag[release.end() :] if release else tag).split("-") if word]
    cuda = rocm = architecture = ""
    runtime = False
    other: list[str] = []
    for word in words:
        found_cuda, found_rocm = _CUDA.fullmatch(word), _ROCM.fullmatch(word)
        if found_cuda:
            cuda = f"{found_cuda[1]}.{found_cuda[2]}"
        elif found_rocm:
            rocm = ".".join(found_rocm.groups())
        elif word == "runtime":
            runtime = True
        elif word in ARCHITECTURES:
            architecture = ARCHITECTURES[word]
        else:
            other.append(word)
    return TagFacts(release[1] if release else "", cuda, rocm, runtime, architecture, tuple(other))


# --- which ones may be deployed -------------------------------------------------------------------------------------

_MOVING = (
    (re.compile(r"latest"), "it is whatever was released last, and each release has other defaults"),
    (re.compile(r"dev|(?:main|master|edge)(?:[-_.]|$)"), "it is built from the head of development, again and again"),
    (re.compile(r"(?:.*-)?nightly"), "it was never released, and nightly images are deleted after a while"),
)
_INSTEAD = "name a release, as v0.5.22, and have image_pin add its digest"


def refuse(reference: ImageReference, need_digest: bool = True) -> str | None:
    """Why an image is not deployed, with the way out; None where it may be."""
    if not reference.tag:
        what = "has a digest and no tag: nobody sees which release it is" if reference.digest else "has no tag"
        more = "" if reference.digest else ", so it would be latest, whatever that is on the day of the pull"
        return f"{reference} {what}{more}. Next step: {_INSTEAD}"
    for pattern, why in _MOVING:
        if pattern.match(reference.tag):
            return f"{reference}: the tag {reference.tag} is not deployed: {why}. Next step: {_INSTEAD}"
    if not read_tag(reference.tag).release:
        return (
            f"{reference}: the tag {reference.tag} does not begin with a whole release of SGLang (v0.5.22), so nobody "
            "knows which arguments and defaults hold. Next step: name a release; give an image of your own such a tag, "
            f"as skopeo copy docker://{reference.tagged} docker://{reference.name}:v0.5.22-{reference.tag}"
        )
    if need_digest and not reference.digest:
        return (
            f"{reference} has no digest: a tag can be moved to another image at any time, and hosts pull on different "
            "days. Next step: have image_pin add its digest"
        )
    return None


def require(reference: ImageReference, need_digest: bool = True) -> None:
    """As `refuse`, as an error."""
    problem = refuse(reference, need_digest)
    if problem:
        raise EngineError("image.refused", problem, reference=str(reference))
