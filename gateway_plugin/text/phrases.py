"""Small talk and statements worth keeping, in several languages: the word lists of the capture filters."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["FILLER", "TRIGGERS"]

FILLER: Final = frozenset(
    """
    ok|okay|okey|k|kk|sure|thanks|thank you|thank you so much|thank you very much|thx|ty|many thanks|yes|yep|yeah|yup
    no|nope|nah|got it|hmm|hm|mm|mhm|ah|aha|oh|lol|haha|hahaha|nice|cool|great|right|alright|all right|fine|perfect|awesome
    sounds good|looks good|will do|never mind|nevermind|no problem|no worries|you too|please|hi|hello|hey|bye|good morning
    good night|go ahead|continue|go on|i see|understood|makes sense|exactly|agreed|done|good|wow|so much|very much|a lot
    that is all|that's all|remember|remember this|remember that|important|always|never|i am fine|i'm fine|i am good|i'm good|i am ok|i'm ok
    ja|nein|danke|danke schön|vielen dank|genau|gut|alles klar|klar|super|passt|bitte|hallo|guten morgen|verstanden|weiter
    oui|non|merci|merci beaucoup|d'accord|très bien|bien|parfait|bonjour|salut|ça marche|compris|d accord
    sí|si|gracias|muchas gracias|vale|de acuerdo|claro|perfecto|bueno|hola|entendido|genial|está bien
    grazie|grazie mille|va bene|certo|perfetto|ciao|capito|d'accordo|obrigado|obrigada|muito obrigado|sim|não|tá bom|beleza
    dank je|bedankt|prima|goed|ja hoor|nee|tak|nie|dzięki|dziękuję|dobrze|jasne|ano|jo|díky|děkuji|dobře|dobrá|ne
    да|нет|спасибо|большое спасибо|хорошо|ладно|понятно|понял|ясно|ок|угу|привет|так|ні|дякую|добре
    好|好的|谢谢|多谢|嗯|嗯嗯|行|可以|是|是的|不|不是|明白|明白了|知道了|收到|没问题|对|哈哈|謝謝|好吧
    はい|うん|いいえ|ありがとう|ありがとうございます|了解|わかった|わかりました|なるほど|オーケー|ok です
    네|예|아니요|고마워|감사합니다|알겠습니다|알겠어|좋아|좋아요|ㅋㅋ|ㅋㅋㅋ
    شكرا|نعم|لا|حسنا|תודה|כן|לא|teşekkürler|tamam|evet|hayır|धन्यवाद|हाँ|ठीक है|terima kasih|cảm ơn
    """.strip()  # noqa: RUF001 -- Russian and Turkish words have such letters
    .replace("\n    ", "|")
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
