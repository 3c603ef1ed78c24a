"""A guess at a text's language, good enough to know when English rules must not judge it.

By script where the script decides, by function words among the languages in Latin script. A wrong guess costs little
by design: whatever is not clearly English is kept rather than judged.
"""

from __future__ import annotations

from collections import Counter

from relayer.extraction.words import Word, word_set, words_of

__all__ = ["UNDETERMINED", "function_words", "guess_language"]

UNDETERMINED = "und"

# Function words of each language; a word in two lists counts for both, and a tie is not English.
_FUNCTION_WORDS: dict[str, frozenset[str]] = {
    "en": word_set(
        """a about after all also am an and any are as at be been but by can can't could did didn't do does doesn't
        don't for from get going got had has have haven't he her here him his how i i'd i'll i'm i've if in into is
        isn't it it's its just let let's like me my need not now of off on one or our out over please she should so some
        than that that's the their them then there these they they're this those to too until up us use want was wasn't
        we we'd we'll we're we've were what when where which while who why will with won't would yes you you're your
        yours always never every because before mine myself still since during without
        """
    ),
    "de": word_set(
        """aber als am auch auf aus bei bin bis bitte das dass dem den der des die dir doch du ein eine einem einen
        einer er es für gegen hab habe haben hat ich ihr im immer in ist ja jetzt kann kein keine mag man mein meine
        meinem meinen meiner mich mir mit möchte muss nach nicht nie noch nur oder schon sich sie sind so über um und
        uns unser unsere von vor war was weil wenn werde wie wieder wir wird wohne zu zum zur
        """
    ),
    "fr": word_set(
        """à au aux avec c'est ce cette ces chez dans de des du elle en est et être il ils j'ai j'aime je la le les leur
        lui ma mais me mes moi mon ne nos notre nous on ou où par pas plus pour préfère qu'il que qui sa ses son sont
        suis sur ta tes toi ton tu très un une vos votre vous d'un d'une jamais toujours
        """
    ),
    "es": word_set(
        """al como con cuando de del desde donde el ella en eres es esta está estoy esto fue ha han hay la las le les lo
        los más me mi mis muy nada ni no nos nosotros nunca para pero por porque que quiero se ser si siempre sin
        sobre soy su sus también te tengo tiene tu un una uso vivo y ya yo prefiero gusta
        """
    ),
    "it": word_set(
        """al alla anche che chi ci come con cosa da dal dalla dei del della di dove e è gli ha ho i il in io la le lei
        lo loro ma mai mi mia mio miei nel nella noi non nostra nostro per perché più quando questa questo sei sempre
        si sono su sua suo tu un una uno preferisco abito
        """
    ),
    "pt": word_set(
        """a ao as com como da das de do dos e é ela ele em era essa esse esta este eu foi isso já mais mas me meu meus
        minha minhas moro muito na não nas no nos nossa nosso nunca o os ou para pela pelo por porque prefiro quando
        que se sem sempre ser seu sua são também tem tenho um uma você
        """
    ),
    "nl": word_set(
        """aan al alle als altijd bij dan dat de deze die dit door een en er geen had hebben heb heeft het hij hoe hun
        ik in is je kan maar me meer met mij mijn naar niet nog nooit nu of om omdat ons onze ook op over te tot uit
        van veel voor waar wat we wel werd wij woon wordt ze zich zij zijn zo
        """
    ),
    "sv": word_set(
        """alltid att av bara de dem den det din du där efter ej en ett från för ha han har hon i inte jag kan man med
        men mig min mina mitt när nu och om oss på sig sin som så till under upp ut var vi vill vår vårt är aldrig
        """
    ),
    "pl": word_set(
        """ale bo być czy dla do gdzie go i ich ja jak jest jestem już lub ma mam mi mnie moja moje mój może na nas
        nasz nie nigdy o od on ona po przez przy są się ta tak tam te tego ten to tu tylko w we z za zawsze że
        """
    ),
    "tr": word_set(
        """ama ben bende beni benim bir biz bu çok da daha de değil en gibi hep hiç için ile istiyorum ki mi ne o
        olarak sen şey var ve veya ya yok zaman
        """
    ),
}

_SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0x0370, 0x03FF, "el"),
    (0x0400, 0x052F, "ru"),
    (0x0590, 0x05FF, "he"),
    (0x0600, 0x06FF, "ar"),
    (0x0900, 0x097F, "hi"),
    (0x0E00, 0x0E7F, "th"),
    (0x3040, 0x30FF, "ja"),
    (0x3400, 0x9FFF, "zh"),
    (0xAC00, 0xD7AF, "ko"),
)
_DENSE_SCRIPTS = frozenset({"zh", "ja", "ko"})
_LETTERS_READ = 2000
_WORDS_READ = 400


def guess_language(text: str, words: list[Word] | None = None) -> str:
    """Return an ISO 639-1 code, or `UNDETERMINED`; reads the first two thousand characters at most.

    A script stands for its most spoken language: Cyrillic is ``ru``, Arabic ``ar``. ``words`` are the words of
    ``text`` when the caller has them already.
    """
    by_script = _script_language(text[:_LETTERS_READ])
    if by_script is not None:
        return by_script
    sample = (words_of(text[: _LETTERS_READ * 2]) if words is None else words)[:_WORDS_READ]
    scores = Counter(
        {name: sum(word.lower in known for word in sample) for name, known in _FUNCTION_WORDS.items()}
    )
    (best, hits), (_, runner_up) = scores.most_common(2)
    if not hits or (hits == runner_up and best == "en") or (hits == 1 and best != "en"):
        return UNDETERMINED
    return best


def function_words(lang: str) -> frozenset[str]:
    """Return the words that hold sentences of a language together; of most languages, nothing."""
    return _FUNCTION_WORDS.get(lang, frozenset())


def _script_language(text: str) -> str | None:
    """Return the language of the script that most letters belong to; None for Latin or no letters."""
    if text.isascii():
        return None
    counts: Counter[str] = Counter()
    latin = 0
    for char in text:
        code = ord(char)
        if code < 0x0370:
            latin += char.isalpha()
            continue
        name = next((name for low, high, name in _SCRIPTS if low <= code <= high), None)
        if name is not None:
            # A Han character or a syllable block says about as much as three Latin letters.
            counts[name] += 3 if name in _DENSE_SCRIPTS else 1
    # Japanese is written with Han characters too; kana decide.
    if counts["ja"]:
        counts["ja"] += counts.pop("zh", 0)
    if not counts or max(counts.values()) <= latin:
        return None
    return counts.most_common(1)[0][0]
