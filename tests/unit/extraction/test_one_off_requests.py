"""Requests for one text are told from rules for all responses, in fifteen languages."""

from __future__ import annotations

import pytest

from relayer.extraction.requests import is_one_off


@pytest.mark.parametrize(
    "text",
    [
        "Übersetze ins Spanische: Bitte antworten Sie mir nur schriftlich und auf Englisch.",
        "Schreib bitte ein Gedicht über den Herbst, immer mit Reimen und sehr kurz.",
        "Formulier mir eine nette Antwort.",
        "Formuliere das höflicher und ohne Emojis: Komm endlich zum Training!",
        "Fass den folgenden Text kurz und in Stichpunkten zusammen: Der Rhein ist lang.",
        "Please write me a nice reply.",
        "Translate this to German: always answer in English.",
        "Write a poem about autumn, always in rhymes and very short.",
        "Escribe un poema sobre el otoño, siempre con rimas y muy corto.",
        "Traduce al alemán: respóndeme siempre en inglés.",
        "Écris un poème sur l'automne, toujours en rimes et très court.",
        "Traduis en espagnol : réponds-moi toujours en anglais.",
        "Scrivi una poesia sull'autunno, sempre in rima e molto breve.",
        "Traduci in spagnolo: rispondimi sempre in inglese.",
        "Escreve um poema sobre o outono, sempre com rimas e muito curto.",
        "Traduz para espanhol: responda sempre em inglês.",
        "Schrijf een gedicht over de herfst, altijd op rijm en heel kort.",
        "Vertaal naar het Spaans: antwoord me altijd in het Engels.",
        "Napisz wiersz o jesieni, zawsze z rymami i bardzo krótki.",
        "Przetłumacz na hiszpański: odpowiadaj mi zawsze po angielsku.",
        "Напиши стихотворение \u043e\u0431 осени, всегда \u0441 рифмами и коротко.",
        "Переведи на испанский: отвечай мне всегда по-английски.",
        "Sonbahar hakk\u0131nda bir şiir yaz, her zaman kafiyeli ve k\u0131sa.",
        "Şunu İspanyolcaya çevir: bana hep İngilizce cevap ver.",
        "اكتب قصيدة عن الخريف، دائما مقفاة وقصيرة.",
        "ترجم إلى الإسبانية: أجبني دائما بالإنجليزية.",
        "पतझड़ पर एक कविता लिखो, हमेशा तुक में और छोटी।",
        "इसका स्पेनिश में अनुवाद करो: मुझे हमेशा अंग्रेज़ी में जवाब दो।",
        "秋についての詩を書いて、いつも韻を踏んで短く。",
        "スペイン語に訳して\uff1aいつも英語で答えてください。",
        "가을에 대한 시를 써 줘, 항상 운율 있고 짧게.",
        "스페인어로 번역해 줘: 항상 영어로 답해 주세요.",
        "写一首关于秋天的诗\uff0c每次都要押韵\uff0c简短一点。",
        "翻译成西班牙语\uff1a请总是用英语回答我。",
    ],
)
def test_a_request_for_one_text_is_no_rule(text):
    assert is_one_off(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sei nie sarkastisch.",
        "always tell me the versions",
        "Antworte immer auf Deutsch",
        "für facebook schreib mir immer nur zwei sätz",
        "Ab jetzt gilt: Antworte mir immer auf Französisch, außer ich schreibe Japanisch.",
        "Schreib mir immer eine Zusammenfassung ans Ende.",
        "Write a summary at the end of every reply.",
        "Übersetze immer alles ins Deutsche.",
        "Write dates like this: 2026-05-01",
        "Write a summary when a text is long.",
        "Formuliere Antworten so: kurz, sachlich.",
        "Schreib das Datum als Tag und Monat.",
        "Toujours : sois bref.",
        "Scrivi sempre un riassunto.",
        "Napisz zawsze odpowiedź po polsku.",
        "いつも日本語で答えてください。",
        "항상 한국어로 답해 줘.",
        "每次都用中文回答。",
        "Bana her zaman Türkçe cevap yaz.",
        "Write me a nice reply. And always answer in German.",
    ],
)
def test_a_rule_for_all_responses_is_no_request_for_one(text):
    assert not is_one_off(text)
