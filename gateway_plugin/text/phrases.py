"""Small talk and statements worth keeping, in several languages: the word lists of the capture filters."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

__all__ = ["FILLER", "TRIGGERS"]

FILLER: Final = frozenset(
    (files("gateway_plugin.text") / "data" / "filler.txt")
    .read_text("utf-8")
    .strip()
    .replace("\n", "|")
    .split("|")
)
"""Phrases, case-folded, that say nothing alone or in a row (MW-15)."""

TRIGGERS: Final = re.compile(
    r"\b(?:remember|don'?t forget|keep in mind|note that|for the record|memorize|zapamatuj|radši|zapamiętaj|pamiętaj)\b"
    r"|\b(?:i|we)(?: really| always| usually)? (?:prefer|like|hate|love|want|need|use|am|work|live|moved|decided)\b|\bi'm\b"
    r"|\b(?:prefer|always|never|important)\b"
    r"|\b(?:my|our) [\w' -]{1,40}? (?:is|are|was)\b"
    r"|\b(?:decided|will use|we'll use|switched to|going with|settled on)\b"
    r"|\b(?:merk dir|vergiss nicht|ich (?:mag|bevorzuge|hasse|liebe|heiße|wohne|arbeite|brauche|bin)|mein name ist|immer|niemals)\b"
    r"|\b(?:souviens-toi|retiens|n'oublie pas|je (?:préfère|déteste|m'appelle|travaille|suis)|j'(?:aime|habite)|toujours|jamais)\b"
    r"|\b(?:recuerda|no olvides|prefiero|me (?:gusta|encanta|llamo)|odio|vivo en|trabajo|siempre|nunca)\b"
    r"|\b(?:ricorda|preferisco|mi (?:piace|chiamo)|lembre-se|lembra|prefiro|eu gosto|me chamo)\b"
    r"|(?:запомни|я (?:люблю|предпочитаю|работаю|живу)|меня зовут|всегда|никогда)"
    r"|记住|记得|我(?:喜欢|讨厌|叫|住在|需要|偏好)|我的[^\n]{1,12}是|總是|总是|从不|覚えて|忘れないで|私(?:は|の)|が好き|기억해|좋아해|제 이름"
    r"|(?<!\w)\+\d{10,15}(?!\d)"
    r"|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}\b",
    re.IGNORECASE,
)
"""Requests to remember, and statements that tend to stay true (MW-16)."""
