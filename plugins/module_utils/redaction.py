# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes secrets out of whatever is stored, shown or returned.

SGLang writes its API keys in clear into its start-up log line and into `/server_info`. Every text and every structure
that leaves a server on its way to a result, a status file, a ledger or a screen passes through `redact`.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "********"

_NAMES = (
    "api_key",
    "admin_api_key",
    "worker_api_key",
    "ssl_keyfile_password",
    "hf_token",
    "huggingface_hub_token",
    "hugging_face_hub_token",
    "authorization",
    "password",
    "passwd",
    "secret",
    "access_token",
    "auth_token",
)
# Words that name a secret as an option and much else in a log line ("#token: 12", "time per token").
_BARE = (
    "(?:[A-Za-z0-9_-]*[_-])?(?<!per[_-])(?<!first[_-])(?:token|pass|passwd|passphrase|secret[_-]key)"
    "|[A-Za-z0-9]*(?:pass|passwd|password)"
)
_NAME = "(?:[A-Za-z0-9_-]*[_-])?(?:" + "|".join(name.replace("_", "[_-]") for name in _NAMES) + ")"
# Quoted parts with escapes and bare characters, as Python, JSON and a shell join them. A bare part ends at white space,
# a closing bracket, or a comma that a white space or a quoted part follows: a key may have a comma inside.
_VALUE = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,)\]}'"]|,(?=[^\s)\]}'"]))+"""
_NOTHING = re.compile(r"""^(?:None|null|''|"")$""")

_ASSIGNED = re.compile(
    rf"""(?P<before>(?<![A-Za-z0-9]){_NAME}["']?\s*[=:]\s*)(?P<value>{_VALUE})""", re.IGNORECASE | re.DOTALL
)
_FLAG = re.compile(
    rf"""(?P<before>--(?:{_NAME}|{_BARE})["']?(?:,?\s+|\s*=\s*))(?P<value>{_VALUE})""", re.IGNORECASE | re.DOTALL
)
# The password of user:password@host. It may hold an @ itself.
_IN_URL = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\"]*:)(?P<value>[^\s/'\"]+)(?=@)")
_BEARER = re.compile(r"(?P<before>\bBearer\s+)(?P<value>[^\s'\",)]+)", re.IGNORECASE)
_SECRET_KEY = re.compile(rf"^{_NAME}$", re.IGNORECASE)
_SECRET_OPTION = re.compile(rf"^(?:{_NAME}|{_BARE})$", re.IGNORECASE)


def _masked(match: re.Match[str]) -> str:
    value = match.group("value")
    if _NOTHING.match(value):
        return match.group(0)
    quote = value[0] if value[0] in "'\"" else ""
    return f"{match.group('before')}{quote}{MASK}{quote}"


def visible(text: str) -> str:
    """The text on one line, with everything that a terminal would obey or not show written out (ESC as \\x1b)."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


def is_secret_option(name: str) -> bool:
    """Whether the name of an option, without its dashes, says that its value is a secret."""
    return bool(_SECRET_OPTION.match(name))


def redact_values(text: str, secrets: tuple[str, ...]) -> str:
    """The text without the given secrets wherever they stand. For text of our own, which may name a setting."""
    for secret in sorted((secret for secret in secrets if secret), key=len, reverse=True):
        for form in (secret, repr(secret)[1:-1]):
            text = text.replace(form, MASK)
    return text


def redact_text(text: str, secrets: tuple[str, ...] = ()) -> str:
    """The text without the values of secret settings, and without the given secrets wherever they stand."""
    text = redact_values(text, secrets)
    text = _BEARER.sub(_masked, text)
    text = _ASSIGNED.sub(_masked, text)
    return _IN_URL.sub(_masked, _FLAG.sub(_masked, text))


def redact(value: Any, secrets: tuple[str, ...] = ()) -> Any:
    """The same structure with every secret replaced; never changes its argument."""
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(key, str) and _SECRET_KEY.match(key) and item not in (None, "")
            else redact(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return _redact_words(list(value), secrets)
    return value


def _redact_words(words: list[Any], secrets: tuple[str, ...]) -> list[Any]:
    """A list, which may be a command line whose secret is the word after its flag."""
    result: list[Any] = []
    after_secret_flag = False
    for word in words:
        if after_secret_flag and isinstance(word, str):
            result.append(MASK)
            after_secret_flag = False
            continue
        after_secret_flag = isinstance(word, str) and word.startswith("--") and is_secret_option(word[2:])
        result.append(redact(word, secrets))
    return result
