"""Words by which people name secrets in fifteen languages, and words that follow such a name in harmless sentences.

`relayer.wire.redaction` builds its rules for spoken secrets from them. Each constant but the sets of words is a part of a
regular expression that is matched without regard to case.
"""

from __future__ import annotations

import re
from typing import Final

from relayer.wire.accents import typed

PASSWORDS: Final = typed(
    r"password|passwd|passphrase|passcode|passwort|kennwort|contraseña|mot de passe?|mdp|phrase secrète|"
    r"parola d'ordine|senha|palavra[ -]passe|wachtwoord|lösenord(?:et)?|hasł(?:o|a|em|u)|парол[ьея]м?|"
    r"şifre(?:si|miz|m)?|parola(?:sı|mız|m)|كلم[ةه] (?:ال)?(?:سر|مرور)|باسوو?رد|पासवर्ड|密码|密碼|口令|パスワード|비밀 ?번호|비번|암호|패스워드"
)
"""Names of a password that have no other common meaning, unlike "clave", "pass" or "key"."""

MORE_PASSWORDS: Final = typed(
    r"pwd|psw|pw|ww|pass|clave|contra(?= de(?:l| la) wi-?fi)|parola|(?:şifre|parola)\w{0,6}|رمز (?:ال)?(?:مرور|دخول)|الرقم السر[يى]|"
    # In Japanese a pass is also a ticket, a port or the path of a file.
    r"パス(?=[はがも:：=\s])(?![^\n]{0,60}[/\\])|パスコード|暗証番号"
)
"""Names of a password that mean something else, too: what they name has to look like one."""

KEYS: Final = typed(
    r"key|schlüssel|clave|clé|chiave|chave|sleutel|klucz|ключ|anahtar\w{0,4}|مفتاح|कुंजी|密钥|金鑰|キー|키"
)

NUMBERS: Final = (
    r"pin(?!\s+(?:the|this|that|these|those|it|them|a|an|all|every)\b)(?:[ -]?(?:code|kodu?|码|碼)|['’]\w{1,3}|im|imiz|u|em)?|pincode|"
    r"geheimzahl|geheimnummer|code secret|пин(?:-?код)?|الرقم السر[يى]|पिन|密码|密碼|暗[証唱]番号|ピン(?:コード|番号)|비밀 ?번호|비번|핀 ?번호"
)
"""Names of a secret number."""

CARDS: Final = typed(
    r"karte|tarjeta|carte|carta|cartão|kaart|pinpas|karty|карт[ыеу]|карточки|kart\w{0,5}|card|sim|(?:ال|لل)?(?:بطاقة|فيزا|كارت)|कार्ड|卡|カード|카드"
)
"""Names of a card, whose password is often a number."""

CODES: Final = typed(
    r"code|combination|combo|kombination|código|clave|contraseña|combinación|digicode|combinaison|codice|combinazione|senha|combinação|"
    r"combinatie|kod\w{0,4}|szyfr|код|шифр|şifre\w{0,4}|رمز|كود|الرقم السر[يى]|कोड|비밀번호|번호|코드|암호|密码|密碼|代码|暗証番号|パスコード|コード|番号"
)
PLACES: Final = typed(
    r"door|alarm|safe|gate|locker|garage|lock|lockbox|padlock|entrance|keypad|vault|intercom|"
    r"tür|haustür|alarmanlage|tresor|tor|spind|schließfach|schloss|eingang|koffer|"
    r"puerta|alarma|caja fuerte|portón|taquilla|garaje|candado|portal|casillero|"
    r"porte|alarme|coffre(?:-fort)?|portail|casier|cadenas|entrée|immeuble|"
    r"porta|allarme|cassaforte|cancello|armadietto|lucchetto|portone|ingresso|"
    r"cofre|portão|garagem|cadeado|cacifo|deur|voordeur|kluis|kluisje|poort|hek|"
    r"drzwi|alarmu|sejfu?|bramy?|szafki|garażu|kłódki|domofonu?|furtki|"
    r"двер\w{1,3}|сигнализаци\w{1,2}|сейф\w{0,2}|ворот\w{0,2}|шкафчик\w{0,2}|гараж\w{0,2}|замк\w{1,2}|домофон\w{0,2}|подъезд\w{0,2}|"
    r"kapı\w{0,5}|alarm\w{1,4}|kasa\w{0,4}|dola[pb]\w{0,4}|garaj\w{0,4}|kilid?t?\w{0,4}|"
    r"(?:ال|لل)?(?:باب|إنذار|خزنة|بوابة|خزانة|كراج|قفل)|"
    r"दरवाज़े|दरवाजे|अलार्म|तिजोरी|गेट|लॉकर|गैराज|ताले|"
    r"현관문?|경보기?|알람|금고|대문|사물함|차고|자물쇠|门|報警器|报警器|警报|保险箱|保险柜|储物柜|车库|锁|门禁|"
    r"ドア|玄関|アラーム|警報|金庫|ゲート|ロッカー|ガレージ|鍵|オートロック"
)
COMPOUNDS: Final = typed(
    r"(?:tür|haustür|alarm|tresor|tor|spind|schließfach|garagen|schloss|deur|kluis|poort|garage|slot|door|gate|lock)-?code"
)
"""Names of a code that are one word in German and Dutch, and often in English."""

NATIONAL_NUMBERS: Final = typed(
    r"ssn|social security(?: number| no\.?)?|sozialversicherungsnummer|numéro de sécu(?:rité sociale)?|"
    r"número de (?:la )?seguridad social|codice fiscale|burgerservicenummer|bsn|pesel|снилс|kimlik numara\w{1,3}|cpf|आधार(?: नंबर)?|"
    r"주민등록번호|身份证号码?|マイナンバー"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IS: Final = r"is|ist|lautet|es|est|c'est|é|è|هي|هو|हैं?"
IS_SLAVIC: Final = r"to|jest|это|—|–|-"
"""The verb between a name and its value; the second in languages in which it is another word elsewhere."""

ARTICLES: Final = r"the|my|our|your|das|die|der|mein|unser|la|el|mi|nuestra|le|notre|mon|il|lo|mia|nostra|a|o|minha|nossa|het|de|ons|mijn"
"""Words between the verb and a name, where the value comes first."""

# The end of a sentence, or the verb at the end of one in languages that have it there.
ENDS: Final = r"(?=(?:です|だよ?|이?야|이에요|예요|입니다)?\s*(?:[.!。！](?!\S)|[。！]|$)|\s+है)"
LETTER: Final = r"[^\s\d\x00-\x40\x5b-\x60\x7b-\xbf\u060c\u061f\u0964\u2000-\u206f\u3000-\u3004\u3008-\u303f\uff00-\uff20]"
"""A letter, or a vowel sign, which `\\w` does not match."""

_PREPOSITIONS: Final = (
    "in", "im", "en", "em", "nel", "dal", "since", "seit", "until", "bis", "um", "at", "ab", "by", "before", "after", "from", "of",
    "desde", "depuis", "sinds", "od", "w", "в", "с", "до",
)  # fmt: skip
BEFORE_TIMES: Final = "".join(rf"(?<!\s{word}\s)" for word in _PREPOSITIONS)
"""Matches where no preposition precedes that a year or a time follows."""

_NOT_VALUES: Final = _words(
    """
    wrong right correct incorrect invalid valid safe secure secret strong weak long short good bad great new old same expired changed
    different required needed missing necessary unknown known public private hidden stored saved lost forgotten broken easy hard simple
    complex empty default temporary important protected encrypted shared reset fine okay here there what this that mine yours ours below
    above attached working useless outdated unsafe insecure leaked stolen compromised pending optional disabled enabled visible case-sensitive
    string boolean number bytes optional varchar integer prompt click enter
    annoying terrible confidential written impossible ready useful sensitive unique blank nothing something everywhere tomorrow today
    mandatory enforced rotated ignored rejected accepted reused guessable trivial cached hashed salted masked redacted printed logged sent
    pflicht verschlüsselt obligatoria obligatorio obligatoire obbligatoria obrigatória obrigatório verplicht obowiązkowe wymagane zorunlu
    обязателен обязательный إلزامية अनिवार्य 필수야 falsch richtig sicher unsicher geheim stark schwach lang kurz neu abgelaufen geändert gleich anders nötig notwendig bekannt unbekannt
    weg einfach schwer kompliziert leer gespeichert vergessen verloren gültig ungültig wichtig gesperrt dasselbe hier dort erforderlich
    incorrecta correcta segura débil larga corta nueva vieja antigua caducada cambiada igual distinta necesaria secreta fácil difícil
    desconocida guardada olvidada perdida válida inválida mala buena aquí fuerte privada pública sencilla errónea equivocada
    incorrect faux juste sûr faible fort longue court nouveau ancien vieux expiré changé pareil différent nécessaire inconnu connu enregistré
    oublié perdu valide invalide facile difficile simple ici secrètement compliqué erroné mauvais
    sbagliata giusta corretta scorretta sicura debole lunga corta nuova vecchia scaduta cambiata uguale diversa necessaria segreta
    sconosciuta salvata dimenticata persa valida errata semplice qui forte complessa
    errada certa correta incorreta fraca longa curta nova velha expirada alterada diferente necessária secreta
    esquecida salva mesma aqui simples complicada
    verkeerd fout juist goed veilig onveilig geheim sterk zwak kort nieuw oud verlopen gewijzigd hetzelfde anders nodig bekend onbekend
    vergeten verloren geldig ongeldig makkelijk moeilijk leeg opgeslagen
    złe dobre błędne poprawne bezpieczne silne słabe długie krótkie nowe stare wygasło zmienione takie inne potrzebne tajne łatwe trudne
    zapisane zapomniane nieznane nieprawidłowe prawidłowe podstawa sekret
    неверный верный правильный неправильный надёжный надежный слабый сильный длинный короткий новый старый истёк истек изменён
    изменен другой нужен секретный простой сложный забыт сохранён сохранен неизвестен тайна секрет важно обязательно
    yanlış doğru güvenli zayıf güçlü uzun kısa yeni eski değişti aynı farklı gerekli gizli kolay zor kayıtlı unutuldu geçersiz geçerli
    nedir basit
    خاطئة صحيحة آمنة ضعيفة قوية طويلة قصيرة جديدة قديمة نفسها مختلفة ضرورية سرية سهلة صعبة منسية منتهية غلط مطلوبة
    में पर का के की को से नहीं
    गलत सही सुरक्षित आसान मुश्किल कठिन नया पुराना क्या मज़बूत मजबूत कमज़ोर कमजोर लंबा छोटा अलग वही गुप्त ज़रूरी जरूरी याद खाली
    비밀 그대로 뭐 무엇 중요 필수 안전 복잡 간단 같은거 기본값 문제
    秘密 什么 必须 必填 保密 一样 安全 简单 复杂 空 默认 重要 必要 多少 相同
    簡単 安全 複雑 秘密 不明 大事 重要 必要 同じ 変更済み 何 なに 無効 有効 大切 長め 短め 別 そのまま ここ 不要 必須 危険
    """
)
# Endings of verbs and adjectives in languages that are written without spaces.
_SAYS_ENDINGS: Final = (
    "的", "了", "吗", "好", "い", "た", "ない", "る", "か", "ん", "다", "요", "까", "어", "ना",
)  # fmt: skip
_IN_SENTENCES: Final = re.compile(
    r"[をにでが]|ない|して|在|每|用|从|要|不|可以|\d(?:文字|[年月日回個位次天个자번개])|[a-z][A-Z]"
)
# Words that are in a sentence and not in a passphrase, in the languages whose passphrases are looked for.
_SENTENCE_WORDS: Final = _words(
    """
    the and not now never always only with from that this still same very too stored kept written known changed secure safe strong weak
    long short good bad expired wrong right required needed new old set use ask see you your they them she her his our for are was were
    have has had will can must should please every under when where what who how there here into about
    nicht immer noch sehr sicher ich wir sie der die das und mit von für ist hat bitte muss soll jeder alle
    que los las una por con para está les des une est pas pour dans sur della che non per sono het een van niet voor zijn wij
    """
)
_DAY, _MONTH = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])"
_DATE: Final = re.compile(
    rf"(?:(?:{_DAY}([./-]){_MONTH}|{_MONTH}([./-]){_DAY})(?:[./-](?:(?:19|20)?\d{{2}})?)?|"
    rf"(?:19|20)\d{{2}}[./-]{_MONTH}(?:[./-]{_DAY})?|{_MONTH}[./-](?:19|20)\d{{2}}|\d{{1,2}}[:.]\d{{2}}(?::\d{{2}})?(?:am|pm|h|uhr)?)(?:T\S*)?",
    re.IGNORECASE,
)


def is_date(value: str) -> bool:
    """Return whether a value is a date or a time of day.

    Example:
        >>> is_date("3.5.2026"), is_date("33-18-21")
        (True, False)
    """
    return _DATE.fullmatch(value) is not None


def is_word_password(value: str) -> bool:
    """Return whether a word after "the password is" may be the password, and does not describe it.

    Example:
        >>> is_word_password("sunflower"), is_word_password("wrong")
        (True, False)
    """
    word = value.casefold()
    if word.isascii() and len(word) < 5:
        return False
    return word not in _NOT_VALUES and not word.endswith(_SAYS_ENDINGS) and not _IN_SENTENCES.search(value)


def is_word_passphrase(value: str) -> bool:
    """Return whether words are a passphrase and not the rest of a sentence about one."""
    return _SENTENCE_WORDS.isdisjoint(re.split(r"[ -]", value.lower()))
