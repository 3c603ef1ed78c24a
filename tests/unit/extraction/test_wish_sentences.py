"""Wishes not to be reminded are recognised in fifteen languages, similar sentences are not, and "her" is who was named before."""

from __future__ import annotations

import json

import pytest

from bench import wishes
from relayer.extraction.statements import ConversationTurn, StatementExtractor
from relayer.extraction.wishes import LONGEST, is_wish, subject_of, wish_in
from relayer.extraction.words import read_data
from relayer.lib.n_grams import LANGUAGES
from relayer.wire.fields import Kind, Role


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("held", [False, True])
def test_most_wishes_of_each_language_are_recognised_and_few_similar_sentences(lang, held):
    said = [text for one, text in wishes.written("hush", held=held) if one == lang]
    other = [text for one, text in wishes.written("other", held=held) if one == lang]
    assert len(said) == len(other) == 8
    assert sum(map(wishes.has_wish, said)) >= 7
    assert sum(map(wishes.has_wish, other)) <= 1


def test_at_most_one_of_a_hundred_ordinary_sentences_is_taken_for_a_wish():
    lines = (wishes.SETS / "ordinary_speech.jsonl").read_text("utf-8").splitlines()
    said = [json.loads(line)["text"] for line in lines] + [text for _, text in wishes.ordinary()[::10]]
    assert sum(map(wishes.has_wish, said)) <= len(said) / 100


@pytest.mark.parametrize(
    "sentence",
    [
        "remind me to call her",
        "don't mention it",
        "Don't mention it, happy to help!",
        "no problem, don't mention it",
        "don't remind me of the meeting until I get home",
        "sprich mich nicht mit Sie an",
        "he never mentions his father",
        "please don't mention prices in the mail to Bob",
        'she wrote "please never mention my father"',
        "",
        "please don't mention her " + "and then we went on and on " * 20,
    ],
)
def test_other_sentences_are_no_wish(sentence):
    assert not is_wish(sentence)
    assert wish_in(sentence) == ()


@pytest.mark.parametrize(
    ("wish", "before", "words"),
    [
        ("please dont mention her", "Leyla and me broke up.", ("leyla",)),
        ("Please don\u2019t mention her!", "My sister died last week.", ("sister",)),
        ("please never bring up my father", "Ben called.", ("father",)),
        ("don't remind me of the accident", "", ("accident",)),
        ("erwähn sie bitte nicht mehr", "Leyla und ich haben uns getrennt.", ("leyla",)),
        ("bitte sprich nie wieder von meinem Vater", "", ("vater",)),
        ("Bitte erwähne den Geburtstag meiner Mutter nicht mehr.", "", ("geburtstag mutter",)),
        ("stop talking about the father of the baby", "", ("father baby",)),
        ("no lo saques más a relucir", "Tobías me dejó.", ("tobías",)),
        ("plus un mot sur mamie s'il te plaît", "", ("mamie",)),
        ("не упоминай её", "Мы \u0441 Лейлой расстались.", ("лейлой",)),
        ("请别再提她", "我和丽拉分手了。", ("丽拉",)),
        ("事故のことを思い出させないで", "", ("事故",)),
        ("재판 얘기는 이제 절대 하지 말자", "", ("재판",)),
        ("لا تذكرني بالحادث", "", ("حادث",)),
        ("मुझे दुर्घटना की याद मत दिलाओ", "", ("दुर्घटना",)),
        ("please dont mention him", "", ()),
        ("Please never mention Emil\u2019s accident again", "", ("emil accident",)),
        ("Please never mention the accident of Emil again", "", ("accident emil",)),
        ("please don't mention Emil's accident or Leyla", "", ("emil accident", "leyla")),
        ("Bitte erwähne den Unfall von Emil nie wieder.", "", ("unfall emil",)),
        ("Por favor, no me hables nunca más del accidente de Emil.", "", ("accidente emil",)),
        ("S'il te plaît, ne me parle plus jamais de l'accident d'Emil.", "", ("accident emil",)),
        ("Per favore, non parlarmi mai più dell'incidente di Emil.", "", ("incidente emil",)),
        ("Por favor, não fale mais do acidente do Emil", "", ("acidente emil",)),
        ("Praat alsjeblieft nooit meer over Emil's ongeluk", "", ("emil ongeluk",)),
        ("proszę nie wspominaj nigdy o wypadku Emila", "", ("wypadku emila",)),
        ("Пожалуйста, не упоминай больше аварию Эмиля", "", ("аварию эмиля",)),
        ("lütfen Emil'in kazas\u0131ndan bir daha bahsetme", "", ("emil kazas\u0131ndan",)),
        ("请别再提埃米尔的事故", "", ("埃米尔 事故",)),
        ("エミールの事故の話はもうしないで", "", ("エミール 事故",)),
        ("에밀의 사고 얘기는 이제 절대 하지 말자", "", ("에밀 사고",)),
        ("لا تذكرني بحادث إميل", "", ("بحادث إميل",)),
        ("मुझे एमिल की दुर्घटना की याद मत दिलाओ", "", ("एमिल दुर्घटना",)),
        ("please never mention my friend Leyla", "", ("leyla",)),
        ("no more memories of Leyla please, don't mention her", "", ("leyla",)),
        ("proszę nie wspominaj o mojej siostrze Leyli", "", ("leyli",)),
        ("не упоминай мою сестру Лейлу", "", ("лейлу",)),
        ("please dont mention her", "Leyla's birthday was great.", ("leyla",)),
        ("nunca mas me menciones a mi ex fede, me hace mal", "", ("fede",)),
        ("please never mention my brother tom again, it hurts", "", ("tom",)),
        ("nao fale mais do meu ex joao, me faz mal", "", ("joao",)),
        ("ne me parle plus de mon ex julien, ca me fait mal", "", ("julien",)),
        ("non parlarmi piu di mio fratello luca", "", ("luca",)),
        ("praat niet meer over mijn ex bram, doet pijn", "", ("bram",)),
        ("bitte erwähne meinen ex leon nicht mehr", "", ("leon",)),
        ("zeynepten bahsetme bi daha", "", ("zeynepten",)),
        ("eski sevgilim zeynepten bahsetme artık", "", ("zeynepten",)),  # noqa: RUF001
        ("nie wspominaj wiecej o moim bylym mezu radku", "", ("radku",)),
        ("prosze nie pisz mi o radku", "", ("radku",)),
        ("не напоминай мне больше о бывшем муже диме, мне больно", "", ("диме",)),  # noqa: RUF001
        ("元カレの大輔の話は二度とせんといて", "", ("大輔",)),
        ("متجبش سيرة اخويا حسام تاني، احنا متخانقين", "", ("حسام",)),
        ("بلاش تجيب سيرة حسام", "", ("حسام",)),
        ("मेरे एक्स राहुल की बात मत करो", "", ("राहुल",)),
        ("전 남자친구 민수 얘기 하지 마", "", ("민수",)),
        ("never mention Leyla, Ben or Tom", "", ("leyla", "ben", "tom")),
        ("Don't bring up my ex's wedding", "", ("ex wedding",)),
        ("please don't mention my ex", "We were in Ulm.", ("ex",)),
        ("never mention my father, Emil says it hurts", "", ("father",)),
    ],
)
def test_a_wish_is_about_what_it_names_or_else_what_was_named_before(wish, before, words):
    assert is_wish(wish)
    assert subject_of(wish, before) == words
    assert wish_in(wish, before) == words


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("dont talk about my dad with me pls, he left and it hurts", ("dad",)),
        ("red mit mir nicht mehr über meinen vater bitte, er ist weg und das tut weh", ("vater",)),
        ("no hables mas de mi papá conmigo porfa, desapareció y me duele", ("papá",)),
        ("parle plus de mon père avec moi stp, il est parti et ça me fait mal", ("père",)),
        ("non parlare più di mio padre con me per favore, è sparito e mi fa male", ("padre",)),
        ("praat niet meer over mijn vader met mij aub, hij is weg en dat doet pijn", ("vader",)),
        ("n fala mais do meu pai comigo por favor, ele sumiu e isso me machuca", ("pai",)),
        ("não fala mais do meu pai", ("pai",)),
        ("não fale mais do meu pai comigo", ("pai",)),
        ("não fala mais do meu pai comigo por favor", ("pai",)),
        ("nao fala do meu pai pra mim", ("pai",)),
        ("por favor não fala mais no meu pai", ("pai",)),
        ("nie rozmawiaj ze mną o moim ojcu, zniknął i to boli", ("ojcu",)),
        ("не говори со мной больше про моего отца, он пропал и мне больно", ("отца",)),  # noqa: RUF001
        ("benimle babam hakkında konuşma, gitti ve canım yanıyor", ("babam",)),  # noqa: RUF001
        ("لا تتكلم معي عن أبي، اختفى وهذا يؤلمني", ("أبي",)),
        ("मुझसे मेरे पिता की बात मत करो, वो चले गए और दुख होता है", ("पिता",)),
        ("나한테 아빠 얘기 하지 마, 집 나가서 힘들어", ("아빠",)),
        ("别跟我提我爸，他走了我难受", ("爸",)),  # noqa: RUF001
        ("私に父の話はしないで、いなくなってつらいから", ("父",)),
    ],
)
def test_with_me_is_not_what_a_wish_is_about(wish, words):
    assert wish_in(wish) == words


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("please don't mention my ex, Nadia, ever again", ("ex", "nadia")),
        ("dont talk to me about my ex, Nadia", ("ex", "nadia")),
        ("dont talk to me about my ex, nadia", ("ex", "nadia")),
        ("Sprich bitte nicht mehr über meinen Ex, Jonas.", ("ex", "jonas")),
        ("erwähne meine Freundin, Nadia, bitte nicht mehr", ("freundin", "nadia")),
        ("no me hables más de mi ex, Nadia", ("ex", "nadia")),
        ("Ne me parle plus jamais de mon ex, Nadia, sauf si j'en parle.", ("ex", "nadia")),
        ("me parle plus jamais de mon ex, Nadia, sauf si jen parle moi", ("ex", "nadia")),
        ("ne me parle plus de mon ex, Nadia", ("ex", "nadia")),
        ("non parlarmi più del mio ex, Matteo", ("ex", "matteo")),
        ("praat niet meer over mijn ex, Nadia", ("ex", "nadia")),
        ("não fale mais do meu ex, Mateus", ("ex", "mateus")),
        ("nie wspominaj o moim mężu, Radku", ("mężu", "radku")),
        ("не упоминай моего мужа, Диму", ("мужа", "диму")),
        ("eski sevgilimden, Zeynep'ten, bahsetme", ("zeynep",)),
        ("لا تذكر خطيبي، حسام", ("خطيبي", "حسام")),
        ("मेरे पति, राहुल, की बात मत करो", ("पति", "राहुल")),
        ("전남친, 민수 얘기 하지 마", ("민수",)),
        ("别再提我前男友，小明", ("男友", "小明")),  # noqa: RUF001
        ("元カレ、大輔の話はしないで", ("元カレ", "大輔")),
    ],
)
def test_a_name_between_commas_is_what_a_wish_is_about(wish, words):
    assert wish_in(wish) == words


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("유산한 얘기는 꺼내지 말아줘 와이프도 나도 힘들어", ("유산",)),
        ("유산 얘기는 하지 말아줘 힘들어", ("유산",)),
        ("작년에 유산한 얘기는 꺼내지 말아줘. 힘들어", ("유산",)),
        ("不要再提我前妻的事，烦", ("前妻",)),  # noqa: RUF001
        ("流産の話はしないで つらいから", ("流産",)),
        ("गर्भपात की बात मत करो बहुत दुख होता है", ("गर्भपात",)),
        ("düşükten bahsetme çok üzülüyoruz", ("düşükten",)),
        ("dont mention the miscarriage it hurts both of us", ("miscarriage",)),
        ("dont bring up my dad because it hurts", ("dad",)),
        ("erwähne die fehlgeburt nicht mehr das tut uns beiden weh", ("fehlgeburt",)),
        ("erwähne die Fehlgeburt nicht mehr weil es weh tut", ("fehlgeburt",)),
        ("no menciones el aborto porque nos duele", ("aborto",)),
        ("ne parle plus de la fausse couche ça nous fait mal", ("fausse couche",)),
        ("ne parle plus de la fausse couche parce que ça nous fait mal", ("fausse couche",)),
        ("non parlare dell'aborto perché ci fa male", ("aborto",)),
        ("não fale do aborto porque nos machuca", ("aborto",)),
        ("praat niet over de miskraam want het doet pijn", ("miskraam",)),
        ("nie wspominaj o poronieniu bo nas to boli", ("poronieniu",)),
        ("не упоминай выкидыш потому что нам больно", ("выкидыш",)),
        ("لا تذكر الإجهاض لأنه يؤلمنا", ("إجهاض",)),
    ],
)
def test_the_reason_is_not_what_a_wish_is_about(wish, words):
    assert wish_in(wish) == words


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (
            "dont recommend me anything w my mum in it please. she died in march, dont want it brought up",
            ("mum",),
        ),
        ("dont recommend me anything w my mum in it please, dont want it brought up", ("mum",)),
        (
            "empfiehl mir bitte nichts mit meiner Mutter. sie ist im März gestorben, ich will nicht daran erinnert werden",
            ("mutter",),
        ),
        ("no me recomiendes nada con mi mamá. murió en marzo, no quiero que la menciones", ("mamá",)),
        (
            "me recommande rien avec ma mère stp. elle est morte en mars, je veux pas en entendre parler",
            ("mère",),
        ),
        ("non consigliarmi niente con mia mamma. è morta a marzo, non voglio parlarne", ("mamma",)),
        (
            "raad me niks aan met mijn moeder. ze is in maart overleden, ik wil er niks over horen",
            ("moeder",),
        ),
        ("não me recomende nada com a minha mãe. ela morreu em março, não quero ouvir falar disso", ("mãe",)),
        ("nie polecaj mi nic z moją mamą. zmarła w marcu, nie chcę o tym słyszeć", ("mamą",)),
        ("не советуй мне ничего с мамой. она умерла в марте, не хочу об этом слышать", ("мамой",)),  # noqa: RUF001
        ("bana annemle ilgili bir şey önerme. martta öldü, bunu duymak istemiyorum", ("annemle",)),
        ("لا تقترح علي شيئا مع أمي. ماتت في مارس، لا أريد أن أسمع عن ذلك", ("أمي",)),
        ("मुझे माँ वाला कुछ मत सुझाओ. वो मार्च में मर गईं, इसका ज़िक्र मत करना", ("माँ",)),
        ("엄마랑 관련된 건 추천하지 마. 3월에 돌아가셨어, 얘기 꺼내지 마", ("엄마",)),
        ("别给我推荐跟我妈有关的。她三月走了，别再提了", ("妈",)),  # noqa: RUF001
    ],
)
def test_it_is_the_person_named_before(wish, words):
    assert wish_in(wish) == words


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("non tirarmi più fuori la storia di matteo ok?", ("matteo",)),
        ("non nominarmi più Matteo", ("matteo",)),
        ("por favor não fala mais no meu pai", ("pai",)),
        ("dont talk to me abt my dad", ("dad",)),
        ("别再提阿杰他前妻的事 烦", ("阿杰 前妻",)),
        ("别再提阿杰前妻的事", ("阿杰 前妻",)),
    ],
)
def test_a_wish_as_people_type_it_is_about_what_it_names(wish, words):
    assert is_wish(wish)
    assert wish_in(wish) == words


@pytest.mark.parametrize(
    "sentence", ["ele não fala mais do pai", "minha mãe não fala do meu pai", "Meu pai nunca fala da guerra."]
)
def test_a_statement_with_a_subject_is_no_wish(sentence):
    assert not is_wish(sentence)


@pytest.mark.parametrize(
    ("wish", "before", "words"),
    [
        ("Please don't bring it up unless I do.", "Daniel lost his job.", ("daniel",)),
        ("Unless I ask, don't mention it", "Daniel lost his job.", ("daniel",)),
        ("Please don't bring up Daniel's job until I ask.", "", ("daniel job",)),
        ("Erwähn das bitte nicht, wenn ich nicht davon anfange.", "Krach mit Jörg.", ("krach jörg",)),
        ("Sprich mich bitte nicht auf Telgte an, außer ich frage danach.", "", ("telgte",)),
        ("No me hables de Bruno a menos que yo pregunte.", "", ("bruno",)),
        ("Ne le mentionne pas sauf si j'en parle.", "J'ai perdu Bruno.", ("bruno",)),
        ("Non nominarlo a meno che io non ne parli.", "Ho perso Bruno.", ("bruno",)),
        ("Não fale do Bruno a não ser que eu pergunte.", "", ("bruno",)),
        ("Noem hem niet tenzij ik erover begin.", "Bruno is dood.", ("bruno",)),
        ("Nie wspominaj o nim, chyba że sam zapytam.", "Bruno nie żyje.", ("bruno",)),
        ("Не упоминай его, если я сам не спрошу.", "Бруно умер.", ("бруно",)),  # noqa: RUF001
        ("Ben sormadıkça ondan bahsetme.", "Bruno öldü.", ("bruno",)),  # noqa: RUF001
        ("لا تذكره إلا إذا سألت", "مات برونو", ("برونو",)),
        ("जब तक मैं न पूछूँ, उसका ज़िक्र मत करना", "ब्रूनो मर गया", ("ब्रूनो",)),
        ("내가 먼저 꺼내지 않는 한 사고 얘기는 하지 마", "", ("사고",)),
        ("除非我问,不要提他", "布鲁诺死了", ("布鲁诺",)),
        ("私が話さない限り、ブルーノの話はしないで", "", ("ブルーノ",)),
        ("Please don't mention it.", "Daniel lost his job.", ("daniel",)),
        ("don't mention it again", "Daniel lost his job.", ("daniel",)),
        ("Daniel lost his job, don't mention it", "", ("daniel",)),
    ],
)
def test_a_wish_may_say_when_the_speaker_may_be_reminded_after_all(wish, before, words):
    assert is_wish(wish)
    assert wish_in(wish, before) == words


@pytest.mark.parametrize(
    ("wish", "before", "words"),
    [
        ("Please never bring it up.", "We lost the baby in March.", ("baby",)),
        ("Please never bring it up.", "My dad died in May.", ("dad",)),
        (
            "Please never bring it up.",
            "I got divorced last October, Monday was the hearing.",
            ("divorced hearing",),
        ),
        ("Please don't mention it.", "Daniel lost his job on Friday.", ("daniel",)),
        ("Please never mention her.", "My cousin May died.", ("may",)),
        ("please never mention Monday again", "Ben called.", ("monday",)),
        ("Bitte erwähn das nie.", "Im März haben wir das Baby verloren.", ("baby",)),
        ("No lo menciones nunca.", "La boda de marzo se canceló el lunes.", ("boda canceló",)),
        ("Nie wspominaj o niej.", "Maja umarła w maju.", ("maja",)),
        ("请别再提了", "三月孩子死了。", ("孩子",)),
    ],
)
def test_a_month_or_a_weekday_is_not_what_a_wish_is_about(wish, before, words):
    assert wish_in(wish, before) == words


@pytest.mark.parametrize(
    ("sentence", "before", "words"),
    [
        ("forget what I said about the knee", "", ("knee",)),
        ("Please forget what i told you about my knee, it's fine now", "", ("knee",)),
        ("Vergiss, was ich über das Knie gesagt habe.", "", ("knie",)),
        ("olvidate de lo q te dije de la rodilla, ya esta curada", "", ("rodilla",)),
        ("oublie ce que je t'ai dit sur mon genou", "", ("genou",)),
        ("dimentica quello che ti ho detto del ginocchio", "", ("ginocchio",)),
        ("esquece o que eu disse sobre o joelho", "", ("joelho",)),
        ("vergeet wat ik over mijn knie zei", "", ("knie",)),
        ("zapomnij co mowilam o basenie", "", ("basenie",)),
        ("забудь, что я говорил про колено", "", ("колено",)),
        ("fıtıkla ilgili dediklerimi unut, geçti", "", ("fıtıkla",)),  # noqa: RUF001
        ("انسى اللي قلته عن ركبتي", "", ("ركبتي",)),
        ("मैंने घुटने के बारे में जो कहा था उसे भूल जाओ", "", ("घुटने",)),
        ("무릎 얘기는 잊어줘", "", ("무릎",)),
        ("忘了我说的膝盖的事", "", ("膝盖",)),
        ("腰の話は忘れて", "", ("腰",)),
        ("forget what i said", "My brother Emil is in jail.", ("emil",)),
    ],
)
def test_what_is_to_be_forgotten_is_not_to_be_mentioned(sentence, before, words):
    assert is_wish(sentence)
    assert wish_in(sentence, before) == words


@pytest.mark.parametrize(
    "sentence",
    [
        "don't forget what I said about the knee",
        "i always forget what i said",
        "vergiss nicht, was ich über das Knie gesagt habe",
        "no olvides lo que te dije de la rodilla",
        "não esqueça o que eu disse sobre o joelho",
        "nie zapomnij co mówiłam o basenie",
        "не забудь, что я говорил про колено",
        "腰の話は忘れてた",
        "别忘了我说的膝盖的事",
        "I forgot the umbrella, so forget the walk",
    ],
)
def test_what_is_to_be_remembered_or_was_forgotten_is_no_wish(sentence):
    assert not is_wish(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Please don't mention the surprise party to Alice.",
        "don't talk about it to alice",
        "don't discuss it with Tom",
        "don't talk to tom about the party",
        "sprich nicht mit tom darüber",
        "no se lo menciones a alicia",
        "N'en parle pas à Alice.",
        "Ne parle pas de la fête à Alice.",
        "non parlarne con alice",
        "não fale disso com alice",
        "praat niet met tom over het feest",
        "nie rozmawiaj o tym z tomkiem",
        "\u041d\u0435 говори об этом \u0441 томом",  # noqa: RUF001
        "Never mention the trip to Oslo in front of the kids.",
        "Don't talk to my mother about the party.",
        "Don't mention the party when Alice is around.",
        "Bitte erwähne die Überraschungsfeier nicht gegenüber Jürgen.",
        "Bitte erwähne die Feier nicht vor den Kindern.",
        "No menciones la fiesta delante de Alicia.",
        "No le menciones la fiesta a Alicia.",
        "Ne mentionne pas la fête devant Alice.",
        "Ne parle pas de la fête surprise à ma mère.",
        "Non menzionare la festa davanti ad Alice.",
        "Não mencione a festa na frente das crianças.",
        "Praat niet over het feest tegen Alice.",
        "Nie wspominaj o prezencie przy dzieciach.",
        "\u041d\u0435 упоминай праздник при Алисе.",
        "Ayşe'nin yan\u0131nda partiden bahsetme.",
        "लिज़ के सामने पार्टी का ज़िक्र मत करो",
        "لا تذكر الحفلة أمام أليس",
        "아이들 앞에서 파티 얘기 하지 마세요",
        "别在爱丽丝面前提派对",
        "不要跟爱丽丝提派对的事",
        "アリスの前でパーティーの話をしないで",
        "We don't mention Adyen in the changelog.",
        "We don't mention Adyen.",
        "Never mention prices in the newsletter.",
        "He must not find out, so never mention it in the shared calendar.",
        "He must not find out, so never mention it.",
        "In Angeboten nie die Konkurrenz erwähnen.",
        "Nunca menciones los precios en el boletín.",
        "Ne mentionne jamais les prix dans la newsletter.",
        "Non menzionare mai i prezzi nella newsletter.",
        "Nunca mencione os preços na newsletter.",
        "Noem nooit prijzen in de nieuwsbrief.",
        "Nigdy nie wspominaj o cenach w newsletterze.",
        "Никогда не упоминай цены в рассылке.",
        "Bültende fiyatlardan bahsetme.",
        "لا تذكر الأسعار في النشرة",
        "न्यूज़लेटर में कीमतों का ज़िक्र मत करो",
        "뉴스레터에서 가격 언급하지 마",
        "不要在网站上提价格",
        "ニュースレターで価格に言及しないで",
    ],
)
def test_what_others_are_not_to_be_told_is_not_kept_from_who_says_it(sentence):
    assert not is_wish(sentence)
    assert wish_in(sentence) == ()


@pytest.mark.parametrize(
    "sentence",
    [
        "Don't mention Leyla to me again.",
        "don't bring it up with us",
        "i don't want it to be mentioned",
        "i don't want to talk with you about fede anymore",
        "nie chcę z tobą rozmawiać o Radku",
        "never mention the trip to Oslo again",
        "Please don't mention my engagement to Tom.",
        "please don't bring up my ex, it is hard to see her",
        "Please dont bring up Leyla around Christmas",
        "Don't talk about my father in front of me",
        "Never bring up the accident in front of the house",
        "erwähne Leyla nicht mehr mir gegenüber",
        "Erwähne das Haus gegenüber nicht mehr",
        "Sprich nicht mehr über das Verhältnis zu meinem Vater.",
        "No menciones más a Alicia.",
        "No le menciones más.",
        "No me hables de mi madre delante de Ana.",
        "Ne mentionne plus l'accident à Paris.",
        "Ne parle plus de ma mère devant moi.",
        "Non nominare più il viaggio a Oslo.",
        "Não mencione mais a viagem ao Porto.",
        "Praat niet meer over het proces tegen Jan.",
        "ik wil niet aan mijn broer herinnerd worden",
        "Nie wspominaj przy mnie o ojcu.",
        "\u041d\u0435 упоминай при мне отца.",
        "\u041d\u0435 упоминай Машу, ей плохо",
        "Benim yan\u0131mda Ayşe'den bahsetme.",
        "मेरे सामने मेरे पिता का ज़िक्र मत करो",
        "لا تذكر أبي أمامي",
        "내 앞에서 아빠 얘기 하지 마",
        "别在我面前提他",
        "别再跟我提她",
        "私の前で彼の話をしないで",
        "please don't mention the newsletter again",
        "Don't mention the accident in Oslo.",
        "don't remind me of the argument in the group chat",
        "we don't want to hear about the accident again",
        "Erwähne den Unfall auf der Autobahn nie wieder.",
        "No menciones más la oferta.",
        "别再提博客",
    ],
)
def test_what_the_speaker_does_not_want_to_hear_is_a_wish_whatever_it_looks_like(sentence):
    assert is_wish(sentence)


def test_a_wish_is_kept_whatever_else_would_be_said_of_it():
    turn = ConversationTurn(Role.USER, "What a day. please dont mention her. Thanks!")
    (found,) = [one for one in StatementExtractor().extract([turn]) if one.wish]
    assert "dont mention her" in found.text
    assert found.kind is Kind.PREFERENCE


def test_what_is_to_be_forgotten_is_no_task_and_no_preference():
    turn = ConversationTurn(Role.USER, "forget what I said about the knee")
    (found,) = StatementExtractor().extract([turn])
    assert found.wish
    assert found.kind is Kind.STATEMENT


def test_an_assistant_has_no_such_wishes():
    turn = ConversationTurn(Role.ASSISTANT, "The result is 12. Please don't mention Leyla any more.")
    assert not any(one.wish for one in StatementExtractor().extract([turn]))


def test_a_text_of_any_length_is_read_in_time():
    assert wish_in("don't " * 100_000) == ()
    assert not is_wish("a" * (LONGEST + 1))


@pytest.mark.parametrize("name", ["except", "forget", "not", "unless"])
def test_every_language_has_the_lists_without_which_its_wishes_would_be_wrong(name):
    lists = read_data("wishes.toml")
    assert lists[name].keys() == lists["about"].keys()
