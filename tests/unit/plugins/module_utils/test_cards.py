# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cards of the instances of one host: the same one twice, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.cards import (
    Claim,
    conflicts,
    parse_card,
    visible_devices,
)

GPUS = [{"index": 0, "uuid": "GPU-aaaa"}, {"index": 1, "uuid": "GPU-bbbb"}]


@pytest.mark.parametrize(
    ("given", "card"), [(0, 0), ("3", 3), ("GPU-1a2b-3c", "GPU-1a2b-3c"), ("MIG-1a/0", "MIG-1a/0")]
)
def test_cards_are_indices_or_uuids(given: Any, card: Any) -> None:
    assert parse_card(given) == card


@pytest.mark.parametrize("given", ["gpu0", "", -1, True, 1.5, "GPU-", "all"])
def test_what_is_neither_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="neither an index nor a UUID"):
        parse_card(given)


def test_indices_are_those_of_nvidia_smi() -> None:
    # CUDA numbers cards by speed unless it is told otherwise.
    assert visible_devices([1, 0]) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}
    assert visible_devices(None) == {}


@pytest.mark.parametrize(
    ("one", "other", "gpus", "said"),
    [
        ((0,), (1,), (), None),
        ((0, 1), (1, 2), (), "both have card 1"),
        (("GPU-aaaa",), ("GPU-aaaa",), (), "both have card GPU-aaaa"),
        ((0,), ("GPU-aaaa",), GPUS, "both have card GPU-aaaa"),
        ((0,), ("GPU-bbbb",), GPUS, None),
        ((0,), ("GPU-bbbb",), (), "in different ways"),
        ((None), (1,), (), "'one' declares no cards"),
        (None, None, (), "'one' and 'other' declares no cards"),
    ],
)
def test_two_instances_on_one_card_are_refused(one: Any, other: Any, gpus: Any, said: str | None) -> None:
    problems = conflicts([Claim("one", one), Claim("other", other)], gpus)
    assert (problems == []) if said is None else (len(problems) == 1 and said in problems[0])


def test_sharing_must_be_said_by_both() -> None:
    assert conflicts([Claim("one", (0,), shared=True), Claim("other", (0,), shared=True)]) == []
    assert len(conflicts([Claim("one", (0,), shared=True), Claim("other", (0,))])) == 1


def test_a_server_without_cards_needs_none() -> None:
    assert conflicts([Claim("one", None, needs_cards=False), Claim("other", (0,))]) == []


def test_one_instance_alone_may_name_no_cards() -> None:
    assert conflicts([Claim("one", None)]) == []


@pytest.mark.parametrize(
    ("cards", "gpus", "said"),
    [
        ((0, 0), (), "card 0 is listed twice"),
        ((0, "GPU-aaaa"), GPUS, "card GPU-aaaa is listed twice"),
        ((0, "GPU-aaaa"), (), "mixes indices and UUIDs"),
    ],
)
def test_one_instance_names_a_card_once(cards: Any, gpus: Any, said: str) -> None:
    problems = conflicts([Claim("one", cards)], gpus)
    assert len(problems) == 1
    assert said in problems[0]
