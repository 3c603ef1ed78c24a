"""What people say in any language without saying anything, and the rule for languages that have no rules.

Without rules for a language, a sentence is kept unless it asks, is a known courtesy, or is too short to say anything:
keeping a triviality is the cheaper mistake.
"""

from __future__ import annotations

from relayer.domain.record import Kind
from relayer.extraction.normal_text import normal_text
from relayer.extraction.rules import NOTHING, PASSES, Verdict
from relayer.extraction.sentences import is_question
from relayer.extraction.words import Phrases, words_of

__all__ = ["is_courtesy", "judge_unruled_sentence"]

_COURTESIES = Phrases(
    """danke, danke schön, vielen dank, bitte, bitte schön, gern geschehen, guten morgen, guten tag, guten abend, gute nacht,
    hallo, tschüss, bis bald, bis morgen, alles klar, ja, nein, genau, super, klar, na klar, kein problem, schönen tag,
    merci, merci beaucoup, de rien, bonjour, bonsoir, salut, au revoir, à bientôt, d'accord, oui, non, très bien, parfait,
    avec plaisir, bonne journée, bonne nuit, je vous en prie, ça marche, pas de problème,
    gracias, muchas gracias, de nada, hola, buenos días, buenas tardes, buenas noches, adiós, hasta luego, hasta mañana,
    vale, sí, claro, perfecto, muy bien, genial, por favor, de acuerdo, sin problema,
    grazie, grazie mille, prego, ciao, buongiorno, buonasera, arrivederci, va bene, certo, perfetto, d'accordo, sì,
    obrigado, obrigada, muito obrigado, muito obrigada, de nada, olá, bom dia, boa tarde, boa noite, tchau, tudo bem,
    até logo, sim, não, certo, perfeito,
    dank je, dank je wel, dank u wel, bedankt, graag gedaan, hallo, goedemorgen, goedenavond, tot ziens, ja, nee, prima,
    tack, tack så mycket, hej, hej då, god morgon, ja, nej, tack ska du ha, dziękuję, dzięki, proszę, cześć, dzień dobry,
    dobry wieczór, do widzenia, tak, nie, dobrze, teşekkürler, teşekkür ederim, merhaba, günaydın, tamam, evet, hayır,
    спасибо, большое спасибо, спасибо большое, пожалуйста, привет, здравствуйте, доброе утро, добрый день, до свидания,
    пока, да, нет, хорошо, ладно, отлично, дякую, привіт,
    شكرا, شكرا لك, شكرا جزيلا, مرحبا, السلام عليكم, صباح الخير, مساء الخير, نعم, لا, حسنا, مع السلامة, عفوا,
    תודה, תודה רבה, שלום, בוקר טוב, ערב טוב, להתראות, כן, לא, בסדר, בבקשה,
    धन्यवाद, नमस्ते, ठीक है, हाँ, नहीं, शुक्रिया, ευχαριστώ, γεια, γεια σου, καλημέρα, ναι, όχι, εντάξει,
    谢谢, 谢谢你, 谢谢您, 多谢, 非常感谢, 不客气, 你好, 您好, 早上好, 晚安, 再见, 好的, 好, 是的, 没问题, 对, 嗯, 明白了, 知道了,
    謝謝, 多謝, 不客氣, 再見, 沒問題, 好啊, 好的谢谢,
    ありがとう, ありがとうございます, ありがとうございました, どうも, こんにちは, おはよう, おはようございます, こんばんは, さようなら,
    はい, いいえ, 了解, 了解です, 了解しました, わかりました, お疲れ様です, お疲れ様でした, よろしくお願いします, おやすみなさい,
    감사합니다, 고마워, 고마워요, 고맙습니다, 안녕, 안녕하세요, 안녕히 가세요, 네, 아니요, 좋아요, 알겠습니다, 괜찮아요"""  # noqa: RUF001 - words of other scripts are the point
)

_DENSE_FROM = 0x2E80
_FEWEST_DENSE_CHARACTERS = 4
_FEWEST_WORDS = 2
# Several of them after one another.
_LONGEST_COURTESY = 200


def is_courtesy(sentence: str) -> bool:
    """Whether the sentence is made of known courtesies alone, in any of the listed languages."""
    if len(sentence) > _LONGEST_COURTESY:
        return False
    words = words_of(normal_text(sentence))
    return bool(words) and _COURTESIES.covers(words) == len(words)


def judge_unruled_sentence(sentence: str) -> Verdict:
    """Judge a sentence of a language without rules: it passes unless it asks, greets, or says next to nothing."""
    if is_question(sentence) or is_courtesy(sentence):
        return NOTHING
    # Scripts without spaces between words are counted by character; a Thai sentence is one long "word" too.
    dense = sum(ord(char) >= _DENSE_FROM and char.isalpha() for char in sentence)
    words = words_of(sentence)
    long_word = any(len(word.shape) >= 12 for word in words)
    if dense >= _FEWEST_DENSE_CHARACTERS or len(words) >= _FEWEST_WORDS or long_word:
        return Verdict(PASSES, Kind.STATEMENT)
    return NOTHING
