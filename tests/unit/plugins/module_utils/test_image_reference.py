# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""References are read as docker reads them, written as every engine takes them, and refused with the way out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError
from ansible_collections.serving.sglang.plugins.module_utils.image_reference import (
    ImageReference,
    NotAReference,
    TagFacts,
    parse_reference,
    read_tag,
    refuse,
    require,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4

component = st.from_regex(r"[a-z0-9]{1,8}(?:(?:[._]|__|-{1,3})[a-z0-9]{1,8}){0,2}", fullmatch=True)
host = st.one_of(
    st.just("localhost"),
    st.from_regex(r"[a-z0-9]{1,8}(?:\.[a-z0-9]{1,8}){1,3}", fullmatch=True).filter(lambda name: name != "docker.io"),
    st.from_regex(r"[A-Z][a-z]{1,8}:[0-9]{1,5}", fullmatch=True),
    st.from_regex(r"\[[a-f0-9:]{2,20}\](?::[0-9]{1,5})?", fullmatch=True).filter(lambda name: ":" in name),
)
digest = st.one_of(st.just(""), st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True))
tag = st.one_of(st.just(""), st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True))


@given(host, st.lists(component, min_size=1, max_size=4), tag, digest)
def test_what_is_written_is_read_again(registry, components, tag, digest) -> None:
    reference = ImageReference(registry, "/".join(components), tag, digest)
    assert parse_reference(str(reference)) == reference


@given(st.lists(component, min_size=1, max_size=3), tag, digest)
def test_names_of_docker_hub_are_one_however_short(components, tag, digest) -> None:
    rest = "/".join(components) + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    if "." in components[0] and len(components) > 1:
        components = ["x", *components]
        rest = "x/" + rest
    if components[0] == "localhost" and len(components) > 1:
        return
    short = parse_reference(rest)
    assert short.registry == "docker.io"
    assert short == parse_reference(f"docker.io/{rest}") == parse_reference(f"index.docker.io/{rest}")
    assert parse_reference(str(short)) == short


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text) -> None:
    try:
        reference = parse_reference(text)
    except NotAReference:
        return
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    ("text", "name", "tag", "digest"),
    [
        ("sglang", "docker.io/library/sglang", "", ""),
        ("lmsysorg/sglang:v0.5.22", "docker.io/lmsysorg/sglang", "v0.5.22", ""),
        (f"lmsysorg/sglang:v0.5.22@{DIGEST}", "docker.io/lmsysorg/sglang", "v0.5.22", DIGEST),
        (f"lmsysorg/sglang@{DIGEST}", "docker.io/lmsysorg/sglang", "", DIGEST),
        ("localhost/sglang:v0.5.22", "localhost/sglang", "v0.5.22", ""),
        ("localhost:5000/sglang", "localhost:5000/sglang", "", ""),
        ("10.0.0.1:5000/ml/team/sglang:v1", "10.0.0.1:5000/ml/team/sglang", "v1", ""),
        ("[::1]:5000/sglang:v1", "[::1]:5000/sglang", "v1", ""),
        # A first part with a capital can be no part of a repository's name.
        ("Registry/sglang", "Registry/sglang", "", ""),
        ("registry/sglang", "docker.io/registry/sglang", "", ""),
        ("sglang:5000", "docker.io/library/sglang", "5000", ""),
    ],
)
def test_the_parts_of_a_reference(text, name, tag, digest) -> None:
    reference = parse_reference(text)
    assert (reference.name, reference.tag, reference.digest) == (name, tag, digest)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty. Write it as docker.io/lmsysorg/sglang:v0.5.22@sha256:<64 digits>"),
        (" lmsysorg/sglang", "the repository ' lmsysorg/sglang' is none"),
        ("docker://lmsysorg/sglang:v0.5.22", "leave 'docker://' out"),
        ("https://hub.docker.com/r/lmsysorg/sglang", "leave 'https://' out"),
        ("lmsysorg/SGLang:v0.5.22", "it is written in lower case: 'lmsysorg/sglang'"),
        ("lmsysorg/sglang:", "the tag '' is none"),
        ("lmsysorg/sglang:-x", "the tag '-x' is none"),
        ("lmsysorg/sglang:" + "x" * 129, "at most 128"),
        ("lmsysorg//sglang", "is none"),
        ("lmsysorg/sglang@", "malformed digest: '' does not say its algorithm"),
        ("lmsysorg/sglang@sha256:", "malformed digest: it has 0 digits after sha256:, and 64 are right"),
        (f"lmsysorg/sglang@{DIGEST[:-1]}", "malformed digest: it has 63 digits after sha256:, and 64 are right"),
        (f"lmsysorg/sglang@{DIGEST[7:]}", "does not say its algorithm"),
        (f"lmsysorg/sglang@sha512:{'0' * 128}", "its algorithm is 'sha512'"),
        ("lmsysorg/sglang@" + DIGEST.replace("ab", "AB"), "it has capital letters"),
        ("lmsysorg/sglang@sha256:" + "x" * 64, "has other characters than 0-9 and a-f"),
        (f"lmsysorg/sglang@{DIGEST}@{DIGEST}", "malformed digest"),
        ("a" * 64, "are the id of an image on one host"),
        ("x.org/" + "/".join(["part"] * 60), "the name has more than 255 characters"),
        ("[::1/sglang", "is no host name with an optional port"),
        ("host:port/sglang", "the registry 'host:port' is no host name"),
    ],
)
def test_what_is_no_reference_is_told_why(text, says) -> None:
    with pytest.raises(NotAReference) as raised:
        parse_reference(text)
    assert says in raised.value.msg
    assert repr(text) in raised.value.msg


@pytest.mark.parametrize(
    ("tag", "facts"),
    [
        ("v0.5.22", TagFacts("0.5.22")),
        ("0.5.22", TagFacts("0.5.22")),
        ("v0.5.19-cu129", TagFacts("0.5.19", cuda="12.9")),
        ("v0.5.11-cu130-runtime", TagFacts("0.5.11", cuda="13.0", runtime=True)),
        ("v0.5.6.post2-cu129-amd64-runtime", TagFacts("0.5.6.post2", "12.9", "", True, "amd64")),
        ("v0.5.23-arm64", TagFacts("0.5.23", architecture="arm64")),
        ("v0.5.19-rocm700-mi35x", TagFacts("0.5.19", rocm="7.0.0", other=("mi35x",))),
        ("v0.5.22-team3", TagFacts("0.5.22", other=("team3",))),
        ("v0.5.0rc0-cu126", TagFacts("0.5.0rc0", cuda="12.6")),
        ("v0.5", TagFacts(other=("v0.5",))),
        ("v0.5.22x", TagFacts(other=("v0.5.22x",))),
        ("latest-runtime", TagFacts(runtime=True, other=("latest",))),
        ("", TagFacts()),
    ],
)
def test_what_a_tag_says(tag, facts) -> None:
    assert read_tag(tag) == facts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lmsysorg/sglang", "has no tag, so it would be latest"),
        (f"lmsysorg/sglang@{DIGEST}", "has a digest and no tag: nobody sees which release it is"),
        ("lmsysorg/sglang:latest", "the tag latest is not deployed: it is whatever was released last"),
        ("lmsysorg/sglang:latest-runtime", "the tag latest-runtime is not deployed"),
        ("lmsysorg/sglang:latest-cu130", "the tag latest-cu130 is not deployed"),
        (f"lmsysorg/sglang:latest@{DIGEST}", "the tag latest is not deployed"),
        ("lmsysorg/sglang:dev", "built from the head of development"),
        ("lmsysorg/sglang:dev-cu13", "built from the head of development"),
        ("lmsysorg/sglang:main", "built from the head of development"),
        ("lmsysorg/sglang:nightly-dev-20251208-5e2cda61", "never released"),
        ("lmsysorg/sglang:v0.5.22-nightly", "never released"),
        ("lmsysorg/sglang:glm-5.3-flash", "does not begin with a whole release of SGLang"),
        ("lmsysorg/sglang:v0.5", "docker://docker.io/lmsysorg/sglang:v0.5.22-v0.5"),
        ("lmsysorg/sglang:v0.5.22", "has no digest: a tag can be moved to another image at any time"),
    ],
)
def test_what_is_not_deployed_and_the_way_out(text, says) -> None:
    problem = refuse(parse_reference(text))
    assert problem is not None
    assert says in problem
    assert ". Next step: " in problem
    with pytest.raises(EngineError) as raised:
        require(parse_reference(text))
    assert (raised.value.kind, raised.value.msg) == ("image.refused", problem)


@pytest.mark.parametrize("tag", ["v0.5.22", "v0.5.22-cu130-runtime", "0.5.23-mine", "v0.5.22-latest"])
def test_what_may_be_deployed(tag) -> None:
    reference = parse_reference(f"registry.example.com/sglang:{tag}")
    assert refuse(reference, need_digest=False) is None
    assert refuse(reference.pinned(DIGEST)) is None
