"""The shapes the injection detector knows, as patterns over normalised text.

A rule blocks when ordinary speech does not have its shape, and only makes a text suspect otherwise. The two lists of
sentences in the detector's tests, what must be found and what must pass, hold every rule in place: a new rule brings
sentences for both. All gaps are bounded, so that each rule is linear in the text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["BLOCKING", "SUSPICIOUS", "InjectionClass"]


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
        r"\b(?:ignor\w{1,5}|olvida|omite|oublie[zs]?|vergiss|vergesst|dimentica|esqueca)(?: sie)? (?:alle |todas |todos |tutte |toutes )?(?:las |les |le |die |as |deine |tus |tes )?(?:(?:vorherigen|bisherigen|vorigen|fruheren|obigen) anweisungen|(?:instrucciones|indicaciones) (?:anteriores|previas)|(?:instructions|consignes) (?:precedentes|anterieures|ci-dessus)|instrucoes anteriores|istruzioni precedenti)\b",
    ),
    (InjectionClass.OVERRIDE, r"\bигнорируй(?:те)? (?:все )?(?:предыдущие|прежние) (?:инструкции|указания)"),  # noqa: RUF001 -- Russian
    (
        InjectionClass.OVERRIDE,
        r"忽略(?:之前|以上|先前|所有|前面)[^\n]{0,8}(?:指令|指示|提示)|(?:以前|これまで|上記)の(?:指示|命令)を無視",
    ),
    (
        InjectionClass.ROLE,
        r"<\|?(?:im_start|im_end|system|assistant|developer|endoftext|start_header_id|eot_id)\|>",
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
        rf"{_IMAGE}[?&/=](?:\{{[^)\s]{{1,80}}\}}|<[^)>\s]{{1,80}}>|\[[^)\]\s]{{1,80}}\]|\$\w{{1,40}})",
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
        r"\bdecode (?:this|the following|it|and)[^\n]{0,60}\b(?:execute|follow|obey|run (?:it|the result))\b",
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
