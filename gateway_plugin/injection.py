"""Text that tries to command the model instead of informing it.

Recalled text stands in a prompt, so a memory is a way in for whoever could write one. The detector reads a normalised
text (escapes decoded once, look-alike letters folded, invisible characters removed) and names *classes*. Shapes that
ordinary speech does not have block a text; weaker ones make it suspect: stored, but never injected on its own. Talk
about software is full of "override", "act as" and "run the command", so single words never count.

Every pattern has bounded gaps: the work is linear in the text, of which the first 64 Ki characters are read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import re
import secrets
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from gateway_plugin.text.wrappers import contains_wrapper
from relayer.wire.fields import remove_invisible


class InjectionClass(StrEnum):
    """What a text tries."""

    OVERRIDE = "instruction_override"
    ROLE = "role_spoofing"
    TOOL = "tool_invocation"
    EXFILTRATION = "exfiltration"
    WRAPPER = "wrapper_forgery"
    ENCODED = "encoded_payload"


_WORDS2: Final = r"(?:[\w'-]{1,30} ){0,2}"
_WORDS3: Final = r"(?:[\w'-]{1,30} ){0,3}"
_START: Final = r"(?m)(?:^|[.!?:]\s)\W{0,4}"
_INSTRUCTIONS: Final = (
    r"(?:instructions?|prompts?|directives?|guidelines?|programming|guardrails?|rules you were given)"
)
_EARLIER: Final = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|original|initial|system|developer|safety)"
)
_CREDENTIALS: Final = (
    r"(?:api[ _-]?keys?|passwords?|secrets?|credentials?|access tokens?|tokens?|private keys?|seed phrases?|system prompt|"
    r"environment variables|env vars|\.env)"
)
_PRIVATE: Final = rf"(?:{_CREDENTIALS}|memories|(?:chat|conversation)(?: history)?)"
_SEND: Final = r"(?:send|post|upload|forward|e-?mail|transmit|exfiltrate|leak)"
_PLACE: Final = r"(?:https?://|[\w.+-]{1,64}@|the attacker)"
_IMAGE: Final = r"!\[[^\]\n]{0,100}\]\(\s?https?://[^)\s]{1,500}"
_USE: Final = r"(?:run|execute|call|invoke|use)"
_LIMITS: Final = r"(?:instructions|rules|guidelines|programming|safety|guardrails|restrictions|filters?|protocols|policies|training)"

BLOCKING: Final[tuple[tuple[InjectionClass, str], ...]] = (
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget|discard) {_WORDS3}{_EARLIER},? {_WORDS2}{_INSTRUCTIONS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget|discard) (?:all|any|every|each)(?: of)? ?(?:the |your |my |these |those )?{_INSTRUCTIONS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget) (?:all )?(?:of )?your (?:[\w-]{{1,30}} )?{_LIMITS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:override|bypass|disable) (?:all |any )?(?:of )?your {_WORDS2}{_LIMITS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\bforget (?:everything|all)(?: that)? (?:you (?:were|know|have|learned)|i told you|(?:was|were) said)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:do not|don'?t|never|stop) (?:follow|obey)(?:ing)? (?:the |your |any |my )?(?:{_EARLIER} {_WORDS2}(?:{_INSTRUCTIONS}|rules|messages?)|openai|anthropic)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\boverride (?:the |all )?(?:system|developer|previous|prior) (?:prompt|instructions?|messages?)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:enter|enable|activate|switch to) (?:the )?(?:jailbreak|dan|unrestricted) mode\b|\bdo anything now\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\bjailbreak yourself\b|\bnew instructions? from (?:the )?(?:system|developer|admin|openai|anthropic)",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:must|shall|should|need|will|may|can|are) ?(?:not|n't|no longer)(?: to| allowed to)? (?:follow|obey|listen to|comply with|respect|heed)(?:ing)? (?:the |your |any |all ){{1,2}}(?:{_EARLIER} {_WORDS2})?(?:{_INSTRUCTIONS}|developers?|creators?)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:set|put|throw|cast|push|brush) (?:aside|away|out) (?:all |any |of |the |your |those ){{1,4}}{_WORDS2}{_LIMITS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:abandon|neglect|violate|unlearn|dismiss|stop following|step outside) (?:all |any )?(?:of )?your (?:[\w-]{{1,30}} ){{0,2}}{_LIMITS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:ignor\w{1,5}|olvida|omite|oublie[zs]?|vergiss|vergesst|dimentica|esqueca)(?: sie)? (?:alle |todas |todos |tutte |toutes )?(?:las |les |le |die |as |deine |tus |tes )?(?:(?:vorherigen|bisherigen|vorigen|fruheren|obigen) anweisungen|(?:instrucciones|indicaciones) (?:anteriores|previas)|(?:instructions|consignes) (?:precedentes|anterieures|ci-dessus)|instrucoes anteriores|istruzioni precedenti)\b",
    ),
    (InjectionClass.OVERRIDE, r"\bигнорируй(?:те)? (?:все )?(?:предыдущие|прежние) (?:инструкции|указания)"),  # noqa: RUF001 -- Russian
    (
        InjectionClass.OVERRIDE,
        r"忽略(?:之前|以上|先前|所有|前面)[^\n]{0,8}(?:指令|指示|提示)|(?:以前|これまで|上記)の(?:指示|命令)を無視",
    ),
    (
        InjectionClass.ROLE,
        r"<\|?(?:im_start|im_end|im_sep|system|user|assistant|developer|tool|endoftext|fim_\w{2,9}|(?:start|end)_header_id|(?:start|end)_of_turn|eot_id|eom_id|begin_of_text)\|>",
    ),
    (InjectionClass.ROLE, r"\[/?inst\]|<</?sys>>"),
    (InjectionClass.ROLE, r"(?m)^\W{0,2}</?(?:system|assistant|developer)(?: [^<>\n]{0,100})?>"),
    (
        InjectionClass.ROLE,
        r"(?m)^\W{0,4}(?:system|developer|assistant)(?: message| prompt| override)?\s?:\s{0,4}(?:you (?:are|must|will|shall|should)|ignore|disregard|forget|from now on|override|do not|never|reveal|execute|respond|obey|new (?:rule|instruction|directive)|the user (?:is|has))\b",
    ),
    (
        InjectionClass.ROLE,
        r"\byou are now (?:dan\b|(?:[\w-]{1,30}, )?(?:an? |the )?(?:[\w-]{1,30} ){0,3}(?:ai|assistant|model|bot|chatbot|persona|pirate|hacker|character|jailbroken|unrestricted|uncensored|unfiltered)\b|in (?:[\w-]{1,30} )?mode\b|free (?:from|of)\b)",
    ),
    (
        InjectionClass.ROLE,
        r"\byou are (?:now )?no longer (?:bound|restricted|limited|an? (?:[\w-]{1,30} )?(?:ai|assistant|model|bot))\b",
    ),
    (
        InjectionClass.TOOL,
        r"</?(?:tool_calls?|function_calls?|tool_use|(?:\w{1,16}:)?invoke name=|function=)",
    ),
    (
        InjectionClass.TOOL,
        rf"\b(?:secretly|without (?:telling|notifying|informing) (?:the user|anyone|anybody)),? {_WORDS3}{_USE} {_WORDS3}(?:tool|command|function)s?\b",
    ),
    (
        InjectionClass.TOOL,
        rf"\b{_USE} {_WORDS3}(?:tool|command|function)s? [^.\n]{{0,60}}(?:without (?:asking|telling|notifying|informing) the user|do not (?:tell|inform) (?:the user|anyone))",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"\b{_SEND} (?:all |every |the user'?s |your ){_WORDS3}{_CREDENTIALS}[^\n]{{0,80}} to {_PLACE}",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"\b{_SEND} (?:all )?the user'?s {_WORDS3}{_PRIVATE}[^\n]{{0,80}} to {_PLACE}",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"{_IMAGE}[?&/=](?:\{{[^)\n]{{1,80}}\}}|<[^)>\n]{{1,80}}>|\[[^)\]\n]{{1,80}}\]|\$\w{{1,40}})",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"{_IMAGE}[?&](?:secret|token|password|key|data|conversation|history|prompt|memory|memories|leak)=(?!true|false|\d)[^)\s]",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"\b(?:reveal|repeat|leak|expose|print|output|disclose) (?:me )?(?:all |verbatim )?(?:of )?your (?:[\w-]{1,30} ){0,2}(?:system prompt|initial prompt|hidden (?:prompt|instructions)|developer message|secrets|api keys?)\b",
    ),
    (
        InjectionClass.ENCODED,
        r"\b(?:decode|decrypt|unscramble|deobfuscate) (?:this|the|it|and|my|what)\b[^\n]{0,60}\b(?:execute|follow|obey|(?:run|do) (?:it|the result|what|whatever|as))\b",
    ),
)
"""Rules that block, as a class and a pattern over case-folded text."""

SUSPICIOUS: Final[tuple[tuple[InjectionClass, str], ...]] = (
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget|override) {_WORDS3}(?:previous|prior|earlier|system|developer),? {_WORDS2}(?:rules|directions|orders|commands|context)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:skip|bypass) (?:the |all )?(?:system|developer|safety) {_WORDS2}(?:{_INSTRUCTIONS}|{_LIMITS})\b",
    ),
    (InjectionClass.OVERRIDE, r"(?m)(?:^|[.!?]\s)\W{0,4}forget (?:everything|all)\b"),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:ignore|disregard|forget) (?:everything|all|anything) (?:above|before this|prior)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"(?m)(?:^|[.!?]\s)\W{0,4}new instructions?\s?:|\byour new instructions? (?:is|are)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget) (?:the |all |any )?{_INSTRUCTIONS} {_WORDS2}(?:earlier|before|above|previously)\b",
    ),
    (InjectionClass.OVERRIDE, r"\bnew system prompt\s?:"),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:(?:previous|prior|above|earlier|preceding|original|system) {_INSTRUCTIONS}|(?:instructions|rules|everything|all|anything|text) (?:above|before|until now|so far)(?: this \w{{1,10}})?) (?:is|are|was|were|has been|have been) (?:now |all |just |only )?(?:void|invalid|a (?:test|joke|mistake|lie)|cancell?ed|revoked|fake|wrong|outdated|obsolete|superseded|lifted|replaced by)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:do not|don'?t|never|stop) (?:listen(?:ing)? to|trust(?:ing)?|obey(?:ing)?) (?:the |your |any )?(?:system|developers?|operator|creators?|previous|other instructions)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:the|your) (?:rules|instructions|guidelines|restrictions|limits) (?:you (?:were|have been) given|of your (?:developers?|creators?)|no longer apply to you|do not apply to (?:you|this|me))\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:from|starting) (?:now|this (?:moment|point|message))(?: on(?:wards?)?)?,? (?:you )?(?:only |must |will |shall |have to )?(?:obey|listen to|answer to|take orders from) (?:only )?(?:me|this)\b|\byou (?:now )?(?:only )?(?:answer|listen|report) (?:only )?to me\b",
    ),
    (
        InjectionClass.ROLE,
        r"\b(?:you are|you're|as|imagine|be|being|play) (?:now )?(?:an? |the )?(?:[\w-]{1,30} ){0,2}(?:ai|assistant|model|llm|chatbot|bot) (?:with(?:out| no)|that has no|free of|not bound by) (?:any |all |its |more )?(?:[\w-]{1,30} )?(?:restrictions|limits|rules|guidelines|filters|guardrails|morals|ethics|censorship)\b",
    ),
    (
        InjectionClass.ROLE,
        r"\b(?:the |this |current )?user (?:is|has been|was) (?:now )?(?:verified|authenticated|confirmed|promoted|an? (?:verified|trusted|authorised|authorized))\b[^.\n]{0,30}\badmin",
    ),
    (
        InjectionClass.ROLE,
        r"\b(?:i am|i'm|this is) your (?:developer|creator|administrator|operator|owner|programmer)\b[^\n]{0,80}\b(?:must|obey|now|disable|reveal|allow)",
    ),
    (
        InjectionClass.TOOL,
        r"\b(?:as soon as|once|when|whenever|after) you (?:read|see|receive|recall|retrieve|process|load) (?:this|these)\b[^.\n]{0,30}\b(?:run|execute|call|invoke|use|open|visit|send|post|fetch|download|delete)\b",
    ),
    (
        InjectionClass.TOOL,
        r"\b(?:run|execute|invoke)\b[^\n]{0,80}\b(?:do not|don't|never|without) (?:mention|tell|inform|reveal|notify|show)(?:ing)? (?:it|this|that|the user|anyone|anybody)\b",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"{_START}(?:please |now |then |always )?(?:append|attach|add|include|insert|embed|encode|put|paste|copy|write) (?:the |all |your |every |this |my |our |any )?{_WORDS3}(?:{_PRIVATE}|conversation so far|previous messages)\b[^\n]{{0,60}}(?:https?://|\b(?:url|link|query string|image (?:url|address)|webhook)\b)",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"\b(?:show|tell|give|copy|write|paste|quote|translate|summari[sz]e|display|dump|list|recite|share)\b (?:me )?[^.\n]{0,30}\byour (?:[\w-]{1,30} )?(?:system prompt|system message|initial prompt|initial instructions|hidden prompt|(?:hidden|secret|original|internal) (?:instructions|rules))\b",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"\bwhat (?:does|is|are|were|did) (?:in )?your (?:[\w-]{1,30} )?(?:system prompt|system message|initial prompt|(?:hidden|secret|original|initial) (?:instructions|rules))\b",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"{_START}(?:please |now |then )?{_SEND} (?:[\w'-]{{1,30}} ){{0,5}}{_PRIVATE}[^\n]{{0,80}} (?:to|at|via|through) (?:the )?(?:webhook|url|address|server|{_PLACE})",
    ),
    (
        InjectionClass.ENCODED,
        r"\b(?:rot-?13|base-?64|hex(?:adecimal)?|caesar|morse)\b[^\n]{0,60}\b(?:obey|(?:follow|execute) (?:it|them|the (?:instructions?|commands?|result)))\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:do not|don'?t|never) (?:follow|obey) (?:the |your |any )?(?:system|developer)s?\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\bjailbreak(?:s|ed|ing)? (?:the |this |an? )?(?:ai|assistant|model|llm|chatbot|prompt)\b|\bjailbreak prompt",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\boverride (?:the |all )?(?:safety|security|content) (?:rules|policy|policies|filters?|guidelines|protocols?)\b",
    ),
    (InjectionClass.ROLE, r"</?(?:system|assistant|developer|tool|function)(?: [^<>\n]{0,100})?>"),
    (InjectionClass.ROLE, r"(?m)^\W{0,4}#{2,4} ?(?:system|instructions?)(?:\s{0,4}$|\s?:)"),
    (InjectionClass.ROLE, r"(?m)^\W{0,4}(?:system|admin|developer|security) override\s?:"),
    (
        InjectionClass.ROLE,
        r"\b(?:act|behave|respond|roleplay|pretend) (?:as|like|to be)(?: if you (?:are|were))? (?:an? |the )?(?:[\w-]{1,30} ){0,2}(?:unrestricted|uncensored|unfiltered|jailbroken|evil|dan|developer mode|different ai|without (?:any )?(?:restrictions|limits|rules))\b",
    ),
    (
        InjectionClass.ROLE,
        r"\b(?:act|behave|respond) as if you (?:had|have) no (?:restrictions|limits|rules|guidelines|filters)\b",
    ),
    (InjectionClass.ROLE, r"\bfrom now on,? you are (?:an? |the |no longer |now |called )"),
    (
        InjectionClass.TOOL,
        rf"{_START}(?:now |then |please |immediately |you must |always )?(?:run|execute|call|invoke) (?:the |this |that |your )?(?:`?(?:shell|exec|bash|terminal|browser|payment)`? (?:tool|command|function)|`?(?:system|delete|admin|memory|\w{{1,30}}_\w{{1,30}})`? tool)\b",
    ),
    (
        InjectionClass.TOOL,
        rf"{_START}(?:you must |immediately )(?:run|execute|call|invoke)\b[^.\n]{{0,60}}\b(?:tool|command|function)s?\b",
    ),
    (
        InjectionClass.TOOL,
        rf"\b(?:when|whenever|if|after) (?:the )?user\b[^.\n]{{0,60}}\b{_USE} (?:the |your )?`?[\w-]{{1,40}}`? tool\b",
    ),
    (
        InjectionClass.TOOL,
        rf"\b(?:silently|quietly|without (?:asking|telling|notifying) (?:the user|anyone|me)) {_WORDS3}{_USE} {_WORDS3}tools?\b",
    ),
    (InjectionClass.TOOL, r"\b(?:run|execute)\b[^.\n]{0,40}\brm -rf [/~]"),
    (
        InjectionClass.EXFILTRATION,
        rf"{_START}(?:please |now |then )?{_SEND} {_WORDS3}{_PRIVATE}[^\n]{{0,80}} to {_PLACE}",
    ),
    (InjectionClass.EXFILTRATION, rf"{_IMAGE}\?[^)\s]{{0,80}}=[^)&\s]{{40,}}"),
    (
        InjectionClass.EXFILTRATION,
        r"\b(?:reveal|leak|expose|disclose) (?:the |its |your )?(?:system prompt|(?:hidden )?instructions|developer message)\b",
    ),
    (InjectionClass.EXFILTRATION, r"\brepeat (?:the |all (?:the )?)?(?:words|text|everything|lines) above\b"),
    (InjectionClass.WRAPPER, r"\(untrusted(?: metadata|, for context)?\):"),
)
"""Rules that make a text suspect."""


MAX_SCANNED_CHARS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found: classes that block a text, and classes that only make it suspect."""

    blocking: frozenset[InjectionClass] = frozenset()
    suspicious: frozenset[InjectionClass] = frozenset()

    @property
    def blocked(self) -> bool:
        """Whether the text must be neither stored nor injected."""
        return bool(self.blocking)

    @property
    def suspect(self) -> bool:
        """Whether the text may be stored but not injected on its own."""
        return bool(self.suspicious) and not self.blocking

    @property
    def classes(self) -> frozenset[InjectionClass]:
        """Everything that was found."""
        return self.blocking | self.suspicious


_LOOKALIKES: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝкмтвнгёїαεοριυνκτχηβıɡɩʟοϲ",
    "aeopcxyijshdqwkmtbhreiaeopiuvktxnbigiloc".replace(" ", ""),
)
_SPACED: Final = re.compile(r"(?<!\w)(?:\w[ .*_-]){4,60}\w(?!\w)")
_SPACE: Final = re.compile(r"[^\S\n]+")
_TAG_CHARS: Final = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007e]{4,}")
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,4096}={0,2}")
_HEX: Final = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){16,2048}(?![0-9A-Fa-f])")
_MAX_PAYLOADS: Final = 16

_BLOCKING_RULES: Final = tuple((kind, re.compile(source)) for kind, source in BLOCKING)
_SUSPICIOUS_RULES: Final = tuple((kind, re.compile(source)) for kind, source in SUSPICIOUS)


# Verdicts by a keyed digest: the same memories are recalled turn after turn, reading one takes 0.2 ms, and no text stays.
_MOST_KNOWN: Final = 4096
_KEY: Final = secrets.token_bytes(32)
_known: Final[dict[bytes, Verdict]] = {}


def scan(text: str) -> Verdict:
    """Name what a text tries, over its plain, its folded and its decoded forms."""
    text = text[:MAX_SCANNED_CHARS]
    place = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=_KEY, digest_size=16).digest()
    verdict = _known.get(place)
    if verdict is None:
        verdict = _read(text)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[place] = verdict
    return verdict


def _read(text: str) -> Verdict:
    blocking, suspicious = _match(text)
    hidden = "".join(chr(ord(char) - 0xE0000) for run in _TAG_CHARS.findall(text) for char in run)
    if hidden:
        # Letters that nobody sees have no honest use outside flags.
        blocking.add(InjectionClass.ENCODED)
    if any(any(_match(payload)) for payload in _payloads(text)):
        blocking.add(InjectionClass.ENCODED)
    return Verdict(frozenset(blocking), frozenset(suspicious - blocking))


def normalise(text: str) -> str:
    """Return the form that patterns read.

    HTML entities and percent escapes are decoded once, compatibility forms unified (NFKC), invisible characters and
    accents removed, Cyrillic and Greek look-alikes folded to Latin, letters written apart joined, case folded, spaces
    unified. Line breaks stay.
    """
    return _folded(_plain(text))


def _plain(text: str) -> str:
    decoded = html.unescape(text)
    if "%" in decoded:
        decoded = unquote(decoded, errors="replace")
    plain = remove_invisible(unicodedata.normalize("NFKC", decoded)).casefold()
    return _SPACE.sub(" ", plain.replace("\u2019", "'"))


def _folded(plain: str) -> str:
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
        plain = unicodedata.normalize("NFC", plain.translate(_LOOKALIKES))
    return _joined(plain)


def _joined(text: str) -> str:
    return _SPACED.sub(lambda match: re.sub(r"[ .*_-]", "", match[0]), text)


def _match(text: str) -> tuple[set[InjectionClass], set[InjectionClass]]:
    plain = _plain(text)
    # Joined before spaces are unified: of letters written apart, two spaces are the end of a word.
    folded = _folded(_plain(_joined(remove_invisible(text))))
    # Some rules look at the start of a line, others must not be escaped by breaking one.
    forms = {plain, folded, _SPACE.sub(" ", folded.replace("\n", " "))}
    blocking = {kind for kind, rule in _BLOCKING_RULES if any(rule.search(form) for form in forms)}
    suspicious = {kind for kind, rule in _SUSPICIOUS_RULES if any(rule.search(form) for form in forms)}
    if any(contains_wrapper(form) for form in forms):
        blocking.add(InjectionClass.WRAPPER)
    return blocking, suspicious - blocking


def _payloads(text: str) -> list[str]:
    """Decode what looks like base64 or hexadecimal and turns out to be readable text."""
    found = [bytes.fromhex(run).decode("utf-8", "replace") for run in _HEX.findall(text)[:_MAX_PAYLOADS]]
    for match in _BASE64.findall(text)[:_MAX_PAYLOADS]:
        body = match.rstrip("=").translate(str.maketrans("-_", "+/"))
        try:
            found.append(base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace"))
        except binascii.Error:
            continue
    return [payload for payload in found if payload.isprintable() or "\n" in payload]
