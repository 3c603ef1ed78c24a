"""The English words and phrases that `relayer.extraction.statements` looks for, loaded from ``data/english.toml``."""

from __future__ import annotations

from relayer.extraction.words import Phrases, read_data, word_set

_DATA = read_data("english.toml")
_WORDS = {name: word_set(listing) for name, listing in _DATA["words"].items()}
_PHRASES = {name: Phrases(listing) for name, listing in _DATA["phrases"].items()}

FIRST_PERSON = _WORDS["first_person"]
INTERJECTIONS = _PHRASES["interjections"]
EMPTY_WORDS = _WORDS["empty_words"]
GREETINGS = _PHRASES["greetings"]
PARTINGS = _PHRASES["partings"]
AGREEMENT = _PHRASES["agreement"]
DATES = _PHRASES["dates"]
NUMBER_WORDS = _WORDS["number_words"]
WORK_DONE = _WORDS["work_done"]
COMMITMENTS = _PHRASES["commitments"]
FINDINGS = _PHRASES["findings"]
MEASURES = _WORDS["measures"]
OFFERS = _PHRASES["offers"]
RESTATEMENTS = _PHRASES["restatements"]
ADVICE_OPENERS = _PHRASES["advice_openers"]
