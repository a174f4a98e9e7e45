# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which cards an instance has, and whether two instances were given the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F/-]*")

Card = Union[int, str]


@dataclass(frozen=True)
class Claim:
    """The cards that one instance was given. `cards` is None when it takes whatever the host has."""

    instance: str
    cards: tuple[Card, ...] | None
    shared: bool = False
    needs_cards: bool = True


def parse_card(value: Any) -> Card:
    """A card as the index or the UUID that nvidia-smi shows for it."""
    text = str(value).strip()
    if not isinstance(value, bool) and re.fullmatch(r"[0-9]+", text):
        return int(text)
    if _UUID.fullmatch(text):
        return text
    raise ValueError(f"{value!r} is neither an index nor a UUID as `nvidia-smi -L` prints it (GPU-…, MIG-…)")


def uuid_by_index(gpus: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """From the readings of a host: [{"index": 0, "uuid": "GPU-…"}, …]."""
    return {int(gpu["index"]): str(gpu["uuid"]) for gpu in gpus if gpu.get("uuid")}


def visible_devices(cards: Sequence[Card] | None) -> dict[str, str]:
    """The environment that lets a process see exactly these cards.

    CUDA numbers cards by speed unless told otherwise; nvidia-smi, and therefore an index here, by bus address.
    """
    if not cards:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(str(card) for card in cards)}


def conflicts(claims: Sequence[Claim], gpus: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """What is wrong with the claims of a host's instances taken together."""
    uuids = uuid_by_index(gpus)
    problems: list[str] = []
    for claim in claims:
        problems += _within(claim, uuids)
    for position, first in enumerate(claims):
        for second in claims[position + 1 :]:
            problem = _between(first, second, uuids)
            if problem:
                problems.append(problem)
    return problems


def _identity(card: Card, uuids: Mapping[int, str]) -> Card:
    return uuids.get(card, card) if isinstance(card, int) else card


def _within(claim: Claim, uuids: Mapping[int, str]) -> list[str]:
    if not claim.cards:
        return []
    same = [_identity(card, uuids) for card in claim.cards]
    twice = sorted({str(card) for card in same if same.count(card) > 1})
    if twice:
        return [f"instance '{claim.instance}': card {', '.join(twice)} is listed twice in cards"]
    if not _comparable(same):
        return [
            f"instance '{claim.instance}': cards mixes indices and UUIDs, so whether one card is listed twice cannot "
            "be told. CUDA does not take both either: use one kind"
        ]
    return []


def _comparable(cards: Sequence[Card]) -> bool:
    return len({isinstance(card, int) for card in cards}) <= 1


def _between(first: Claim, second: Claim, uuids: Mapping[int, str]) -> str | None:
    if not (first.needs_cards and second.needs_cards) or (first.shared and second.shared):
        return None
    names = f"instances '{first.instance}' and '{second.instance}'"
    if first.cards is None or second.cards is None:
        without = [f"'{claim.instance}'" for claim in (first, second) if claim.cards is None]
        return (
            f"{names} are on one host and {' and '.join(without)} declares no cards, so it takes those of the other. "
            "Give each its cards by index or UUID, or set cards_shared: true on both if they are meant to share"
        )
    one = [_identity(card, uuids) for card in first.cards]
    other = [_identity(card, uuids) for card in second.cards]
    both = sorted({str(card) for card in one if card in other})
    if both:
        return (
            f"{names} both have card {', '.join(both)}. Give each its own, or set cards_shared: true on both if they "
            "are meant to share it (and give each a mem-fraction-static that leaves room for the other)"
        )
    if not _comparable([*one, *other]):
        return (
            f"{names} name their cards in different ways (index and UUID), so whether they share one cannot be told. "
            "Use UUIDs for both (nvidia-smi -L), or give the host's gpus"
        )
    return None
