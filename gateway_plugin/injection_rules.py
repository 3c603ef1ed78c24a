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
_INSTRUCTIONS: Final = (
    r"(?:instructions?|prompts?|directives?|guidelines?|programming|guardrails?|rules you were given)"
)
_EARLIER: Final = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|original|initial|system|developer|safety)"
)
_SECRETS: Final = (
    r"(?:api[ _-]?keys?|passwords?|secrets?|credentials?|access tokens?|tokens?|private keys?|seed phrases?|memories|"
    r"(?:chat|conversation)(?: history)?|system prompt|environment variables|env vars|\.env|contacts|personal data)"
)

BLOCKING: Final[tuple[tuple[InjectionClass, str], ...]] = (
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget|discard|skip|bypass) {_WORDS3}{_EARLIER},? {_WORDS2}{_INSTRUCTIONS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:ignore|disregard|forget|discard) (?:all|any|every|each)(?: of)? ?(?:the |your |my |these |those )?{_INSTRUCTIONS}\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:ignore|disregard|forget|break) (?:all )?(?:of )?your (?:[\w-]{1,30} )?(?:instructions|rules|guidelines|programming|training|policies|restrictions)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\bforget (?:everything|all)(?: that)? (?:you|above|before this|i told you|(?:was|were) said)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        rf"\b(?:do not|don'?t|never|stop) (?:follow(?:ing)?|obey(?:ing)?) (?:the |your |any |my )?(?:{_EARLIER}|openai|anthropic)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\boverride (?:all |any )?(?:of )?your (?:[\w-]{1,30} ){0,2}(?:instructions|rules|guidelines|programming|safety|guardrails|restrictions|filters|protocols)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\boverride (?:the |all )?(?:system|developer|previous|prior) (?:prompt|instructions?|messages?)\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\b(?:enter|enable|activate|switch to) (?:the )?(?:jailbreak|dan|god|unrestricted) mode\b|\bdo anything now\b",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\bjailbreak yourself\b|\bnew instructions? from (?:the )?(?:system|developer|admin|openai|anthropic)",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\bignor(?:a|e|ez|iere[n]?)(?: sie)?(?: todas?| toutes?| alle| tutte)?(?: las| les| le| die| as)? (?:instrucciones|instructions|anweisungen|vorherigen anweisungen|bisherigen anweisungen|instrucoes|istruzioni)(?: anteriores| previas| precedentes| precedenti)?\b",
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
    (InjectionClass.ROLE, r"</?(?:system|assistant|developer)(?: [^<>\n]{0,100})?>"),
    (
        InjectionClass.ROLE,
        r"(?m)^\W{0,4}(?:system|developer|assistant)(?: message| prompt| override)?\s?:\s{0,4}(?:you (?:are|must|will|shall|should)|ignore|disregard|forget|from now on|override|do not|never|reveal|execute|respond|obey|new (?:rule|instruction|directive)|the user (?:is|has))\b",
    ),
    (
        InjectionClass.ROLE,
        r"\byou are now (?:dan\b|(?:an? |the )?(?:[\w-]{1,30} ){0,3}(?:ai|assistant|model|bot|chatbot|persona|pirate|hacker|character|jailbroken|unrestricted|uncensored|unfiltered)\b|in (?:[\w-]{1,30} )?mode\b|free (?:from|of)\b|no longer (?:bound|restricted|limited|an?)\b)",
    ),
    (InjectionClass.TOOL, r"</?(?:tool_calls?|function_calls?|tool_use|antml:invoke|invoke name=|function=)"),
    (
        InjectionClass.TOOL,
        rf"\b(?:silently|secretly|quietly|without (?:asking|telling|confirmation|permission|notifying)[^.\n]{{0,30}}) ?{_WORDS3}(?:run|execute|call|invoke|use) {_WORDS3}(?:tool|command|function|script)s?\b",
    ),
    (
        InjectionClass.TOOL,
        rf"\b(?:run|execute|call|invoke|use) {_WORDS3}(?:tool|command|function|script)s? [^.\n]{{0,60}}(?:without (?:asking|telling|confirmation|permission|notifying)|do not (?:tell|mention|ask))",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"\b(?:send|post|upload|forward|e-?mail|transmit|exfiltrate|leak) (?:all |every |the user'?s |your |our |everything in |the (?:full |entire |whole )){_WORDS3}{_SECRETS}[^\n]{{0,80}} to (?:https?://|[\w.+-]{{1,64}}@|the (?:attacker|following))",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"!\[[^\]\n]{0,100}\]\(\s?https?://[^)\s]{1,500}[?&/=](?:\{[^)}\s]{1,80}\}|<[^)>\s]{1,80}>|\[[^)\]\s]{1,80}\]|\$\w{1,40})",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"!\[[^\]\n]{0,100}\]\(\s?https?://[^)\s]{1,500}[?&](?:secret|token|password|key|data|q|conversation|history|prompt|memory|memories|content|leak)=(?!true|false|\d)[^)\s]{1,}",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"\b(?:reveal|repeat|leak|expose|print|output|disclose) (?:me )?(?:all |verbatim )?(?:of )?your (?:[\w-]{1,30} ){0,2}(?:system prompt|instructions|initial prompt|hidden prompt|developer message|secrets|api keys?)\b",
    ),
    (
        InjectionClass.ENCODED,
        r"\bdecode (?:this|the following|it|and)[^\n]{0,60}\b(?:execute|follow|obey|run (?:it|the result))\b",
    ),
)

SUSPICIOUS: Final[tuple[tuple[InjectionClass, str], ...]] = (
    (InjectionClass.OVERRIDE, r"(?m)(?:^|[.!?]\s)\W{0,4}forget (?:everything|all)\b"),
    (InjectionClass.OVERRIDE, r"(?m)(?:^|[.!?]\s)\W{0,4}new instructions?\s?:"),
    (
        InjectionClass.OVERRIDE,
        r"\bjailbreak(?:s|ed|ing)? (?:the |this |an? )?(?:ai|assistant|model|llm|chatbot|prompt)\b|\bjailbreak prompt",
    ),
    (
        InjectionClass.OVERRIDE,
        r"\boverride (?:the |all )?(?:safety|security|content) (?:rules|policy|policies|filters?|guidelines|protocols?)\b",
    ),
    (InjectionClass.ROLE, r"</?(?:tool|function)(?: [^<>\n]{0,100})?>"),
    (InjectionClass.ROLE, r"(?m)^\W{0,4}#{2,4} ?(?:system|instructions?) ?:?\s*$"),
    (
        InjectionClass.ROLE,
        r"\b(?:act|behave|respond|roleplay|pretend) (?:as|like|to be)(?: if you (?:are|were))? (?:an? |the )?(?:[\w-]{1,30} ){0,2}(?:unrestricted|uncensored|unfiltered|jailbroken|evil|dan|developer mode|different ai|without (?:any )?(?:restrictions|limits|rules))\b",
    ),
    (InjectionClass.ROLE, r"\bfrom now on,? you are (?:an? |the |no longer |now |called )"),
    (
        InjectionClass.TOOL,
        r"(?m)(?:^|[.!?:]\s)\W{0,4}(?:now |then |please |immediately |you must |always )?(?:run|execute|call|invoke) (?:the |this |that |your )?(?:`?(?:shell|exec|bash|terminal|system|browser|delete|payment|admin|memory)`? (?:tool|command|function)|`?\w{1,30}_\w{1,30}`? tool)\b",
    ),
    (
        InjectionClass.TOOL,
        r"(?m)(?:^|[.!?:]\s)\W{0,4}(?:you must |immediately )(?:run|execute|call|invoke)\b[^.\n]{0,60}\b(?:tool|command|function)s?\b",
    ),
    (
        InjectionClass.EXFILTRATION,
        rf"(?m)(?:^|[.!?:]\s)\W{{0,4}}(?:please |now |then )?(?:send|post|upload|forward|e-?mail|transmit|exfiltrate|leak) {_WORDS3}{_SECRETS}[^\n]{{0,80}} to (?:https?://|[\w.+-]{{1,64}}@)",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"!\[[^\]\n]{0,100}\]\(\s?https?://[^)\s]{1,500}\?[^)\s]{0,80}=[^)&\s]{40,}",
    ),
    (
        InjectionClass.EXFILTRATION,
        r"\b(?:reveal|leak|expose|disclose) (?:the |its )?(?:system prompt|hidden instructions|developer message)\b",
    ),
    (InjectionClass.WRAPPER, r"\(untrusted(?: metadata|, for context)?\):"),
)
