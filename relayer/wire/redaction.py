"""Detect secrets in conversation text, so that none of them leaves the process or is stored.

A text is searched for the published forms of keys and tokens, for secrets that their context names (``password is
...``, ``API_KEY=...``, a URL's user information), and for numbers with a check digit. Ordinary code and text *about*
secrets must not be changed: a value counts only if it looks like a secret, not like a name, a placeholder or a type.

Gateway and relayer share this module: the gateway redacts before anything leaves it, the relayer before anything is
stored. The running time is linear in the length of the text. ``bench/sets/redaction.jsonl`` measures detection and false
positives.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from relayer.wire.spoken_secrets import (
    ARTICLES,
    BEFORE_TIMES,
    CARDS,
    CODES,
    COMPOUNDS,
    ENDS,
    IS,
    IS_SLAVIC,
    KEYS,
    LETTER,
    MORE_PASSWORDS,
    NATIONAL_NUMBERS,
    NUMBERS,
    PASSWORDS,
    PLACES,
    is_date,
    is_word_passphrase,
    is_word_password,
)

PUBLISHED: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("anthropic_key", r"sk-ant-[A-Za-z0-9_-]{20,200}", ("sk-ant-",)),
    ("openrouter_key", r"sk-or-v1-[0-9a-f]{32,64}", ("sk-or-v1-",)),
    (
        "openai_key",
        r"sk-(?:proj-|svcacct-|admin-|None-)[A-Za-z0-9_-]{20,200}|sk-[A-Za-z0-9]{32,64}",
        ("sk-",),
    ),
    (
        "google_key",
        r"AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{24,40}|ya29\.[A-Za-z0-9_-]{20,400}",
        ("aiza", "gocspx-", "ya29."),
    ),
    ("aws_key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", ("akia", "asia", "abia", "acca")),
    ("github_token", r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}", ("gh", "github_pat_")),
    ("gitlab_token", r"gl(?:pat|rt|ptt|dt|cbt|soat|ft)-[A-Za-z0-9_-]{20,64}", ("gl",)),
    ("slack_token", r"xox[abeoprs]-[A-Za-z0-9-]{10,250}|xapp-\d-[A-Za-z0-9-]{10,250}", ("xox", "xapp-")),
    (
        "slack_webhook",
        r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,200}",
        ("hooks.slack.com",),
    ),
    (
        "discord_webhook",
        r"https://(?:\w{1,20}\.)?discord(?:app)?\.com/api/webhooks/\d{10,25}/[A-Za-z0-9_-]{30,100}",
        ("/api/webhooks/",),
    ),
    ("discord_token", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}", (".",)),
    (
        "stripe_key",
        r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,247}|(?:sk|rk)-(?:live|test)-[A-Za-z0-9-]{8,247}|whsec_[A-Za-z0-9+/=]{24,100}",
        ("_live_", "_test_", "-live-", "-test-", "whsec_"),
    ),
    ("huggingface_token", r"hf_[A-Za-z]{30,40}", ("hf_",)),
    ("npm_token", r"npm_[A-Za-z0-9]{36}", ("npm_",)),
    ("pypi_token", r"pypi-AgE[A-Za-z0-9_-]{50,400}", ("pypi-age",)),
    ("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}", ("sg.",)),
    ("twilio_key", r"(?:SK|AC)[0-9a-fA-F]{32}", ("sk", "ac")),
    ("telegram_token", r"\d{8,10}:AA[A-Za-z0-9_-]{32,35}", (":aa",)),
    ("digitalocean_token", r"do[opr]_v1_[0-9a-f]{64}", ("_v1_",)),
    ("shopify_token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", ("shp",)),
    ("databricks_token", r"dapi[0-9a-f]{32}(?:-\d)?", ("dapi",)),
    ("groq_key", r"gsk_[A-Za-z0-9]{40,60}", ("gsk_",)),
    ("xai_key", r"xai-[A-Za-z0-9]{60,100}", ("xai-",)),
    ("perplexity_key", r"pplx-[A-Za-z0-9]{40,60}", ("pplx-",)),
    ("replicate_token", r"r8_[A-Za-z0-9]{30,45}", ("r8_",)),
    ("linear_key", r"lin_(?:api|oauth)_[A-Za-z0-9]{30,64}", ("lin_",)),
    ("notion_token", r"(?:ntn_|secret_)[A-Za-z0-9]{40,60}", ("ntn_", "secret_")),
    ("vault_token", r"hv[sbr]\.[A-Za-z0-9_-]{24,200}", ("hvs.", "hvb.", "hvr.")),
    ("figma_token", r"fig[dou]_[A-Za-z0-9_-]{35,60}", ("figd_", "figo_", "figu_")),
    ("age_key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,62}", ("age-secret-key-1",)),
    ("jwt", r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{16,2000}", ("eyj",)),
)
"""For each published form: its class, its regular expression without word edges, and hints.

A text whose lower-case form contains none of the hints contains no match.
"""


_HIGH_ENTROPY: Final = 3.0
_LONG: Final = 20
_PLACEHOLDER: Final = re.compile(
    r"(?:\$|%|<|\{|\*{2}|\.{3}|your|my[-_]|example|placeholder|changeme|xxx|redacted|\[|none$|null$|true$|false$|os\.|process\.|"
    r"env|req|self\.|config|get|input|str$|string$|int$|bytes$|optional|required|secrets?\.|settings)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+|\w+\(|[A-Za-z_]+\[")


def like_a_password(value: str) -> bool:
    """Return whether the value of something called a password looks like one, and not like a word, a name or code.

    Example:
        >>> like_a_password("hunter2!x"), like_a_password("yesterday")
        (True, False)
    """
    value = value.rstrip(".!?,;:") if value[-1:] in ".?,;:" else value
    if len(value) < 6 or _PLACEHOLDER.match(value) or _CODE.match(value) or is_date(value):
        return False
    return any(char.isdigit() for char in value) and any(not char.isdigit() for char in value)


def like_a_key(value: str) -> bool:
    """Return whether the value of something called a key looks random.

    Example:
        >>> like_a_key("f3A9k20QxLm7Zt81Vb"), like_a_key("authentication")
        (True, False)
    """
    value = value.rstrip(".!?,;:")
    if len(value) < 16 or _PLACEHOLDER.match(value) or _CODE.match(value) or "/" in value[:2]:
        return False
    kinds = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    found = sum(any(map(kind, value)) for kind in kinds)
    return found >= 2 and _entropy(value) >= _HIGH_ENTROPY


def like_an_issued_key(value: str) -> bool:
    """Return whether the value of something called a key has the form of one: capitals and digits, and long enough."""
    value = value.rstrip(".!?,;:")
    if len(value) < 10 or _PLACEHOLDER.match(value) or _CODE.match(value) or "/" in value[:2]:
        return False
    return any(map(str.isdigit, value)) and sum(map(str.isupper, value)) + sum(map(str.isdigit, value)) >= 6


def drawn_at_random(value: str) -> bool:
    """Return whether a value in the position of a token looks random."""
    return len(value) >= _LONG and not _PLACEHOLDER.match(value) and _entropy(value) >= _HIGH_ENTROPY


def like_a_passphrase(value: str) -> bool:
    """Return whether a quoted value of something called a password may be a passphrase of words."""
    return len(value) >= 8 and not _PLACEHOLDER.match(value) and not _CODE.match(value)


def no_placeholder(value: str) -> bool:
    """Return whether a value is more than a placeholder.

    Example:
        >>> no_placeholder("hunter2"), no_placeholder("xxxxx")
        (True, False)
    """
    return not _PLACEHOLDER.match(value)


def like_a_word_password(value: str) -> bool:
    """Return whether one word after "the password is" may be the password."""
    return no_placeholder(value) and is_word_password(value)


def like_a_national_number(value: str) -> bool:
    """Return whether the value of something called a social security number or the like has as many digits as one."""
    return sum(map(str.isdigit, value)) >= 7


def luhn(text: str) -> bool:
    """Return whether digits pass Luhn's check (ISO/IEC 7812-1), as card numbers do.

    Example:
        >>> luhn("4111 1111 1111 1111")
        True
    """
    digits = [int(char) for char in text if char.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) < 2:
        return False
    doubled = [
        digit if index % 2 == 0 else sum(divmod(2 * digit, 10))
        for index, digit in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0


def iban(text: str) -> bool:
    """Return whether a text passes the checksum of an IBAN (ISO 13616).

    Example:
        >>> iban("DE89370400440532013000"), iban("DE00370400440532013000")
        (True, False)
    """
    compact = "".join(text.split()).upper()
    if not 15 <= len(compact) <= 34:
        return False
    turned = compact[4:] + compact[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _entropy(text: str) -> float:
    """Return the Shannon entropy of a text in bits per character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


_Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """The pattern of one kind of secret. The group ``secret``, or the whole match, is redacted.

    A text whose lower-case form contains none of ``hints`` cannot match the pattern. This way most rules are skipped for
    most texts. A rule whose matches may be longer than `_REACH` is ``long``.
    """

    kind: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    check: _Check | None = None
    long: bool = False


def _rule(
    kind: str,
    pattern: str,
    hints: tuple[str, ...],
    check: _Check | None = None,
    *,
    flags: re.RegexFlag = re.IGNORECASE,
    long: bool = False,
) -> Rule:
    """Return a rule. Its pattern ignores case unless ``flags`` say otherwise; published forms of keys are matched as written."""
    return Rule(kind, re.compile(pattern, flags), hints, check, long)


_EDGE: Final = r"(?<![A-Za-z0-9_-])"
_STOP: Final = r"(?![A-Za-z0-9_-])"

# Words after which a sentence is about secrets and names none.
_ABOUT_SECRETS: Final = r"\s+(?:reset|polic|manager|change|hint|point|takeaway|figure)"
_PASSWORD_NAMES: Final = f"{PASSWORDS}|{MORE_PASSWORDS}"
# What may be between a word that names a secret and the secret: up to eight words, then a verb, a particle or a colon, or nothing.
_SPOKEN_IS: Final = (
    r"(?:[ ]+[^\s.,;:!?\"'=]{1,30}(?:'[^\s.,;:!?\"'=]{1,30})?){0,8}?"
    r"(?:\s*[:\uff1a=\u2014\u662f\u4e3a\u306f\uc740\ub294]\s*[\"'\u201c\u2018\u300c]?|\s+(?:(?:is|ist|lautet|es|est|c'est|\u00e9|\u00e8|to|jest|"
    r"\u044d\u0442\u043e|\u2014|\u0647\u064a|\u0647\u0648|\u0939\u0948)\s+[\"'\u201c\u2018\u300c]?)?)"
)
# "It is", as Japanese and Korean write it behind a number without a space.
_SPOKEN_ENDS: Final = (
    r"\u3067\u3059|\u3060|\uc785\ub2c8\ub2e4|\uc774\uc5d0\uc694|\uc774\uc57c|\uc608\uc694|\uc57c"
)
_SPOKEN_VALUE: Final = r"(?=[^\s\d]{0,60}\d)(?=\d{0,60}[^\s\d])(?P<secret>[A-Za-z0-9][^\s\"'`,;<>(){}\[\]\u0600-\u06ff\u0900-\u097f\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]{3,199})"
_KEY_WORDS: Final = (
    r"(?:api|access|secret|private|encryption|signing|master|account|auth|client|service|shared|session|refresh|bearer|"
    r"webhook|deploy|totp|otp|mfa)[ _.-]?(?:key|token|secret|id)"
    r"|secret|token|jeton|credential|authtoken|sessionid|apikey|(?<=_)key"
)
_PASSWORD_HINTS: Final = (
    "pass", "pw", "psw", "ww", "kennwort", "contra", "clave", "mot de", "mdp", "phrase", "parola", "senha", "wachtwoord", "senord", "l\u00f6sen",
    "has\u0142", "hasl", "\u043f\u0430\u0440\u043e\u043b", "ifre", "\u0643\u0644\u0645", "\u0628\u0627\u0633", "\u0631\u0645\u0632", "\u0627\u0644\u0631\u0642\u0645",
    "\u092a\u093e\u0938", "\u5bc6", "\u53e3\u4ee4", "\u30d1\u30b9", "\u6697\u8a3c", "\ube44\ubc00", "\ube44\ubc88", "\uc554\ud638", "\ud328\uc2a4",
)  # fmt: skip
_KEY_HINTS: Final = ("key", "token", "jeton", "secret", "id", "credential")
_IS: Final = r"""(?:["']?\s*(?:=>|:=|[:=])\s*|\s+(?:is|ist|es|est|\u00e9|lautet|was|to)[:\s]\s*)"""
_VALUE: Final = (
    r"""(?:"(?P<dq>[^"\n]{4,200})"|'(?P<sq>[^'\n]{4,200})'|(?P<bare>[^\s"'`,;<>(){}\[\]]{4,200}))"""
)


def _spoken(kind: str, words: str, value: str, check: _Check | None) -> Rule:
    """Return the rule for a secret that a sentence names: "the password of the printer is ..."."""
    begins = r"(?:(?<![A-Za-z0-9])|(?=[^\x00-\x7f]))"
    return _rule(kind, rf"{begins}(?:{words})(?!{_ABOUT_SECRETS}){_SPOKEN_IS}{value}", ("",), check)


# A word without a letter before it, or one that is written together with the word before it.
_BEGINS: Final = r"(?:(?<![A-Za-z0-9])|(?=[^\x00-\x7f]|passwort|kennwort|wachtwoord))"
_WORDS: Final = r"(?:[ ]+[^\s.,;:!?\"'=\d]{1,30}(?:'[^\s.,;:!?\"'=\d]{1,30})?)"
_ENDS_NAME: Final = r"(?![A-Za-z\u00df-\u024f])"
_PLACED_CODE: Final = (
    rf"{_BEGINS}(?:(?:{COMPOUNDS})|(?:{PLACES}){_ENDS_NAME}[^.!?:\uff1a\u3002\n\d]{{0,25}}?{_BEGINS}(?:{CODES})|"
    rf"(?:{CODES}){_ENDS_NAME}[^.!?:\uff1a\u3002\n\d]{{0,25}}?{_BEGINS}(?:{PLACES})){_ENDS_NAME}"
)
_CODE_VALUE: Final = rf"(?P<secret>(?:\d{{1,2}}(?:-\d{{1,2}}){{2,3}}|\d{{3,10}})[A-F#*]?)(?:(?!\w|[.:/-]\d)|(?={_SPOKEN_ENDS}))"
_CODE_HINTS: Final = (
    "code", "kod", "combin", "kombin", "digo", "clave", "contrase", "codice", "senha", "szyfr", "\u043a\u043e\u0434",
    "\u0448\u0438\u0444\u0440", "ifre", "\u0631\u0645\u0632", "\u0643\u0648\u062f", "\u0627\u0644\u0631\u0642\u0645", "\u0915\u094b\u0921", "\ubc88\ud638",
    "\ucf54\ub4dc", "\uc554\ud638", "\u5bc6", "\u4ee3\u7801", "\u756a\u53f7", "\u30b3\u30fc\u30c9",
)  # fmt: skip
_NATIONAL_HINTS: Final = (
    "ssn", "social", "sozial", "s\u00e9cu", "secu", "codice", "burger", "bsn", "pesel", "\u0441\u043d\u0438\u043b\u0441", "kimlik", "cpf", "\u0906\u0927\u093e\u0930", "\uc8fc\ubbfc",
    "\u8eab\u4efd", "\u30de\u30a4\u30ca",
)  # fmt: skip
# A value that comes before what it is: "... is the password of the router".
_REVERSED: Final = (
    r"(?<![^\s\"'(\u300c])(?P<secret>[A-Za-z0-9][A-Za-z0-9!#$%&*+./=?@^_~-]{5,60})[\"']?(?:"
    rf"\s+(?:is|ist|es|est|\u00e8|\u00e9)\s+(?:{ARTICLES})\s+(?:[^\s.,;:!?]{{1,20}}[ -])?(?:{PASSWORDS})(?!{_ABOUT_SECRETS})(?![a-z])"
    rf"|\s+(?:{IS_SLAVIC}|\u0647\u064a|\u0647\u0648)\s+(?:[^\s.,;:!?]{{1,20}}[ ])?(?:{PASSWORDS})"
    r"|\s+\S{1,20}[\u0131iu\u00fc]n\s+(?:[\u015fs]ifresi|parolas[\u0131i])|\s+\S{1,15}\s+\u0915\u093e\s+\u092a\u093e\u0938\u0935\u0930\u094d\u0921"
    r"|\s?\u662f\s?[^\s\u3002\uff0c]{1,15}\u7684\s?\u5bc6[\u7801\u78bc]|\s?[\u304c\u306f]\s?[^\s\u3002\u3001]{1,15}\u306e\s?\u30d1\u30b9\u30ef\u30fc\u30c9(?:\u3067\u3059|\u3060|\u3002|$)"
    r"|[\uac00\uc774\uc740\ub294]\s+(?:\S{1,15}\s+)?\ube44\ubc00\ubc88\ud638(?:\uc57c|\uc785\ub2c8\ub2e4|\uc774\uc5d0\uc694|\uc608\uc694))"
)


def _named(
    kind: str, words: str, value: str, check: _Check, hints: tuple[str, ...], *, then: str = _IS
) -> Rule:
    return _rule(kind, rf"(?<![A-Za-z0-9])(?:{words}){then}{value}", hints, check)


RULES: Final[tuple[Rule, ...]] = (
    # The body ends at the next two dashes, so many begin lines without an end line cost no more than one.
    _rule(
        "private_key",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=:,.\s]|-(?!-)){0,20000}+"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
        ("-----begin ",),
        flags=re.NOFLAG,
        long=True,
    ),
    *(
        _rule(kind, f"{_EDGE}(?:{form}){_STOP}", hints, flags=re.NOFLAG, long=kind == "jwt")
        for kind, form, hints in PUBLISHED
    ),
    _rule(
        "url_password",
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,100}:(?P<secret>[^\s/@\"'<>]{3,200})@",
        ("://",),
        no_placeholder,
    ),
    _rule("azure_key", r"(?:AccountKey|SharedAccessKey)=(?P<secret>[A-Za-z0-9+/]{20,100}={0,2})", ("=",)),
    _rule("azure_signature", r"[?&]sig=(?P<secret>[A-Za-z0-9%+/]{30,100}(?:=|%3D)?)", ("=",)),
    _rule(
        "authorization",
        r"\b(?:Bearer|Basic|Token)\s+(?P<secret>[A-Za-z0-9._~+/-]{16,2000}={0,2})(?![\w$<{])",
        ("bearer", "basic", "token"),
        drawn_at_random,
        flags=re.NOFLAG,
    ),
    _rule(
        "aws_secret",
        r"aws.{0,20}?(?:secret|key).{0,20}?[=:\s]\s{0,3}[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        ("aw",),
        drawn_at_random,
    ),
    _named("password", _PASSWORD_NAMES, _VALUE, like_a_password, _PASSWORD_HINTS),
    _named(
        "passphrase",
        rf"{PASSWORDS}|pwd|pw|pass",
        r"""["'](?P<secret>[^"'\n]{8,200})["']""",
        like_a_passphrase,
        _PASSWORD_HINTS,
    ),
    _named(
        "password",
        r"password|passwort|pass|pw",
        r"(?P<secret>[^\s\"'`,;<>(){}\[\]]{8,200})",
        like_a_password,
        _PASSWORD_HINTS,
        then=r"\s+",
    ),
    _named("assigned_secret", _KEY_WORDS, _VALUE, like_a_key, _KEY_HINTS),
    _named(
        "assigned_secret",
        _KEY_WORDS,
        r"(?P<secret>[A-Za-z0-9+/_=-]{24,200})",
        like_a_key,
        _KEY_HINTS,
        then=r"\s+",
    ),
    _rule(
        "recovery_phrase",
        r"(?:seed|recovery|mnemonic|backup)[ -](?:phrase|words)\b[^\n]{0,12}?[:\s]\s?(?P<secret>(?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b",
        ("phra", "word"),
    ),
    _rule(
        "one_time_code",
        r"\b(?:(?i:one[- ]time (?:code|password)|verification code|2fa code|otp|security code|cvv|cvc)|PIN|pin code)"
        r"(?:\s+(?:is|ist|es))?[:\s]\s?(?P<secret>\d{3,8})\b",
        ("code", "word", "otp", "cvv", "cvc", "pin"),
        flags=re.NOFLAG,
    ),
    _spoken("one_time_code", NUMBERS, rf"(?P<secret>\d{{4,8}})(?:(?!\w)|(?={_SPOKEN_ENDS}))", None),
    _spoken("password", _PASSWORD_NAMES, _SPOKEN_VALUE, like_a_password),
    _spoken("assigned_secret", KEYS, _SPOKEN_VALUE, like_an_issued_key),
    _rule(
        "passphrase",
        rf"{_BEGINS}(?:{PASSWORDS}){_WORDS}{{0,4}}?(?:\s+(?:{IS})[:\s]\s*|\s*[:\uff1a]\s*)"
        rf"(?P<secret>{LETTER}{{3,12}}(?:[ -]{LETTER}{{3,12}}){{3,7}})\s*(?:[.!]|$)",
        _PASSWORD_HINTS,
        is_word_passphrase,
        flags=re.IGNORECASE | re.MULTILINE,
    ),
    _rule(
        "password",
        rf"{_BEGINS}(?:{PASSWORDS})(?!{_ABOUT_SECRETS})(?:{_WORDS}{{0,5}}?(?:\s*[:\uff1a]\s*|\s+(?:{IS})\s+|(?<=[\u043b\u0142l]\w){_WORDS}{{0,4}}?\s+(?:{IS_SLAVIC})\s+)|"
        rf"\s?[\u662f\u306f\uc740\ub294]\s?|\s+(?=\S{{2,30}}\s+\u0939\u0948))(?P<secret>(?!\d)(?:{LETTER}|\d){{2,30}}?){ENDS}",
        _PASSWORD_HINTS,
        like_a_word_password,
        flags=re.IGNORECASE | re.MULTILINE,
    ),
    _rule(
        "password",
        rf"{_BEGINS}(?:(?:{_PASSWORD_NAMES}){_WORDS}{{0,6}}?(?:\s*[:\uff1a=]\s*|\s+(?:{IS}|{IS_SLAVIC})\s+)|"
        rf"(?:{PASSWORDS})(?:\s?[\u662f\u306f\uc740\ub294]\s?|(?:{_WORDS}{{0,3}}?[ ](?:{CARDS}))?[ ]))"
        rf"(?P<secret>(?!(?:19|20)\d\d(?!\d))\d{{4,12}})(?:(?!\w|[.,:/-]\d)|(?={_SPOKEN_ENDS}))",
        _PASSWORD_HINTS,
    ),
    _rule("password", _REVERSED, _PASSWORD_HINTS, like_a_password, flags=re.IGNORECASE | re.MULTILINE),
    _rule(
        "password",
        r"(?<![\w/@.:-])(?:admin|administrator|root|guest|login):(?P<secret>[A-Za-z0-9!#$%&*+.=?@^_~-]{6,60})",
        ("admin", "root:", "guest:", "login:"),
        like_a_password,
    ),
    _rule(
        "code",
        rf"{_PLACED_CODE}{_WORDS}{{0,4}}?(?:\s*[:\uff1a=\u662f\u306f]\s*|[\uc740\ub294]\s*|\s+(?:(?:{IS}|{IS_SLAVIC})\s+)?){BEFORE_TIMES}{_CODE_VALUE}",
        _CODE_HINTS,
    ),
    _rule(
        "national_number",
        rf"{_BEGINS}(?:{NATIONAL_NUMBERS}){_ENDS_NAME}{_SPOKEN_IS}"
        r"(?P<secret>\d{1,12}(?:[ .-]?\d{1,6}){1,6}[A-Z]?|[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z])(?!\w)",
        _NATIONAL_HINTS,
        like_a_national_number,
    ),
    _rule(
        "card_number",
        r"(?<![\w.-])(?P<secret>[3-6]\d{3}(?:[ -]?\d){9,15})(?![\w-])",
        ("3", "4", "5", "6"),
        luhn,
        flags=re.NOFLAG,
    ),
    _rule(
        "iban",
        r"\b(?P<secret>[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?)\b",
        ("",),
        iban,
        flags=re.NOFLAG,
    ),
)


class Action(StrEnum):
    """The treatment of a text that contains a secret of some class."""

    REDACT = "redact"
    BLOCK = "block"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Finding:
    """A detected secret: its class and its position in the text; never its value."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """The result of redacting a text.

    Attributes:
        text: the text, each secret replaced by ``[<class> removed]``.
        kinds: the classes that were found and replaced, sorted.
        blocked: the classes that block the text as a whole; usually empty.
    """

    text: str
    kinds: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


_HINTED: Final = tuple((hint, at) for at, rule in enumerate(RULES) for hint in rule.hints)

# Long texts are searched in windows of so many characters. A match begins in a window and ends within the reach after it.
_WINDOW: Final = 2_048
_REACH: Final = 1_024
_HINTS_A_STEP: Final = 16

CLASSES: Final = tuple(dict.fromkeys(rule.kind for rule in RULES))
"""Every class, by the name that a policy uses."""

OFF_BY_DEFAULT: Final = frozenset({"iban"})
"""Classes that are allowed unless a policy says otherwise: people do ask an assistant to remember an account number."""

Policy = Mapping[str, Action]
"""The action for each class. A class that is not named is redacted, or allowed if it is in `OFF_BY_DEFAULT`."""


_REMOVED: Final = re.compile(
    rf"\[({'|'.join(re.escape(name.replace('_', ' ')) for name in CLASSES)}) removed\]"
)
# Letters that a case-insensitive pattern takes for an i or an s, although their lower case is not one.
_OTHER_CASES: Final = str.maketrans("\u0130\u0131\u017f", "iis")


def action_for(kind: str, policy: Policy) -> Action:
    """Return the action that a policy takes for a class."""
    return policy.get(kind, Action.ALLOW if kind in OFF_BY_DEFAULT else Action.REDACT)


def redact(text: str, policy: Policy | None = None) -> Redacted:
    """Replace the secrets of a text.

    Example:
        >>> redact("my password is hunter2!x").text
        'my password is [password removed]'
    """
    return next(result for result in redact_in_steps(text, policy) if result is not None)


def removed_kinds(text: str) -> frozenset[str]:
    """Return the classes, as a text names them, of the secrets that were replaced in it.

    Example:
        >>> sorted(removed_kinds("the door takes [code removed], the safe [code removed]"))
        ['code']
    """
    return frozenset(_REMOVED.findall(text))


def redact_in_steps(text: str, policy: Policy | None = None) -> Iterator[Redacted | None]:
    """Redact as `redact`, yielding None after each millisecond or so of work on a long text, and the result at the end.

    A regular expression holds the interpreter lock until it has ended, so one run over a long text would delay other threads.

    Example:
        >>> [step for step in redact_in_steps("my password is hunter2!x") if step is not None][-1].kinds
        ('password',)
    """
    findings: tuple[Finding, ...] = ()
    for step in _find_in_steps(text, policy or {}):
        if step is None:
            yield None
        else:
            findings = step
    if not findings:
        yield Redacted(text)
        return
    parts, at = [], 0
    for finding in findings:
        parts += [text[at : finding.start], f"[{finding.kind.replace('_', ' ')} removed]"]
        at = finding.end
    kinds = tuple(sorted({finding.kind for finding in findings}))
    blocked = tuple(kind for kind in kinds if action_for(kind, policy or {}) is Action.BLOCK)
    yield Redacted("".join([*parts, text[at:]]), kinds, blocked)


def _find_in_steps(text: str, policy: Policy) -> Iterator[tuple[Finding, ...] | None]:
    taken: list[Finding] = []
    covered = bytearray(len(text))
    lowered = text.lower() if text.isascii() else text.translate(_OTHER_CASES).lower()
    hinted: set[int] = set()
    for number, (hint, at) in enumerate(_HINTED):
        if hint in lowered:
            hinted.add(at)
        if number % _HINTS_A_STEP == _HINTS_A_STEP - 1 and len(text) > _WINDOW:
            yield None
    for at in sorted(hinted):
        rule = RULES[at]
        if action_for(rule.kind, policy) is Action.ALLOW:
            continue
        for match in _matches(rule, text):
            if match is None:
                yield None
                continue
            groups = match.groupdict()
            group = next((name for name in ("secret", "dq", "sq", "bare") if groups.get(name)), None)
            start, end = match.span(group or 0)
            is_secret = rule.check is None or rule.check(text[start:end])
            if is_secret and not any(covered[start:end]):
                covered[start:end] = b"\1" * (end - start)
                taken.append(Finding(rule.kind, start, end))
    yield tuple(sorted(taken, key=lambda finding: finding.start))


def _matches(rule: Rule, text: str) -> Iterator[re.Match[str] | None]:
    """Yield the matches that `re.Pattern.finditer` finds, and None after each window of a long text."""
    if rule.long or len(text) <= _WINDOW + _REACH:
        yield from rule.pattern.finditer(text)
        return
    at = 0
    for end in range(_WINDOW, len(text) + _WINDOW, _WINDOW):
        reach = min(end + _REACH, len(text))
        while at < end:
            match = rule.pattern.search(text, at, reach)
            if match is None or match.start() >= end:
                at = end
                break
            if match.end() == reach:
                # It may go on, or not match at all, after what was searched.
                whole = rule.pattern.match(text, match.start())
                if whole is None:
                    at = match.start() + 1
                    continue
                match = whole
            yield match
            at = max(match.end(), match.start() + 1)
        yield None
