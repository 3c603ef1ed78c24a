from __future__ import annotations

import re
import time

import pytest

from gateway_plugin.text.patterns import (
    MAX_PATTERN_CHARS,
    MAX_SUBJECT_CHARS,
    PatternRefused,
    compile_pattern,
    matches,
)


@pytest.mark.row("AR-18")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("HEARTBEAT", "a heartbeat check"), (r"^\[cron[^\]]*\]", "[cron:daily] do it"),
        (r"^/(?:deploy|rollback)\b", "/deploy now"), ("deploy|rollback|restart", "please restart"),
        (r"ticket-\d{1,6}", "see ticket-1234"), (r"^a.*b.*c", "a x b y c"), (r"(?P<word>ping)?$", "anything"),
        (r"[]a]b", "]b"), (r"x{2}y{,3}", "xxy"), (r"a\+b", "a+b"),
    ],
)  # fmt: skip
def test_patterns_that_operators_write_are_accepted_and_match(source, text):
    assert matches(compile_pattern(source), text)


@pytest.mark.parametrize(
    "source",
    [
        "(a+)+$", "(a*)*b", "(a|a)*b", "(a|aa)+$", "((a|b))*c", "([a-z]+)*x", "(?:a{1,9}){1,9}x", "(.*a){12}",
        "a*a*a*b", ".*.*x", "(a?){30}a", "a?" * 30, "(a|a)" * 30, "x.*y.*z", "(?=a+)+b", "(?<=a)b", "(a)\\1+",
        "(?i)abc", "(?P<x>a+)(?P=x)", "(", "[", "*", "a{9999}{9999}", "(" * 60 + "a" + ")*" * 60, "x{1,999}{2}", "^?a*a*b", "^a*a*b|c",
    ],
)  # fmt: skip
def test_patterns_whose_work_has_no_small_bound_are_refused(source):
    with pytest.raises(PatternRefused):
        compile_pattern(source)


def test_a_pattern_longer_than_the_limit_is_refused_with_the_limit_named():
    with pytest.raises(PatternRefused, match="200"):
        compile_pattern("a" * (MAX_PATTERN_CHARS + 1))


@pytest.mark.parametrize("source", [r"\w+x", r"^\w*\w*x", "a.{0,60}b", "^(?:ab)?.*c.*d$"])
def test_the_costliest_accepted_patterns_finish_at_once_on_a_megabyte(source):
    pattern = compile_pattern(source)
    begun = time.thread_time()
    assert not matches(pattern, "a" * 1_000_000)
    assert time.thread_time() - begun < 2


def test_only_the_head_of_a_text_is_matched():
    pattern = compile_pattern("needle")
    assert not matches(pattern, "x" * MAX_SUBJECT_CHARS + "needle")
    assert matches(pattern, "x" * (MAX_SUBJECT_CHARS - 6) + "needle")


@pytest.mark.parametrize(
    ("literal", "same"),
    [
        ("/^x/i", "^x"),
        ("/end$/", "end$"),
        (r"/^a\/b/g", "^a/b"),
        ("/etc/hosts", "/etc/hosts"),
        ("a/b", "a/b"),
    ],
)
def test_a_literal_of_javascript_means_what_stands_between_its_slashes(literal, same):
    assert compile_pattern(literal).pattern == same


def test_a_dot_matches_line_breaks_where_a_literal_says_so():
    assert compile_pattern("/^a.b/s").search("a\nb")
    assert not compile_pattern("/^a.b/").search("a\nb")


@pytest.mark.parametrize(
    ("source", "fix"), [("/etc/", "write etc for the first, [/]etc[/] for the second"), ("/^a/m", "(?:^|")]
)
def test_a_literal_that_may_mean_two_things_is_refused_with_the_fix(source, fix):
    with pytest.raises(PatternRefused, match=re.escape(fix)):
        compile_pattern(source)
    assert compile_pattern("[/]etc[/]").search("in /etc/")
