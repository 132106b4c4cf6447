"""Which URIs a template matches, with which values, in linear time."""

import time

import pytest

from mcp_trio.server.features.uri_template import UriTemplate

MATCHES: list[tuple[str, str, dict[str, str] | None]] = [
    ("a://b", "a://b", {}),
    ("a://b", "a://bc", None),
    ("a://b", "a://", None),
    ("a://{x}", "a://1", {"x": "1"}),
    ("a://{x}", "a://", None),
    ("a://{x}", "a://1/2", None),
    ("a://{x}", "b://1", None),
    ("a://{x}", "a://a%20b", {"x": "a b"}),
    ("a://{x}", "a://a%2Fb", None),
    ("a://{x}", "a://..%2F..%2Fetc", None),
    ("a://{+x}", "a://a%2Fb", {"x": "a/b"}),
    ("a://{x}", "a://%", {"x": "%"}),
    ("a://{x}", "a://é", {"x": "é"}),
    ("a://{+x}", "a://1/2/3", {"x": "1/2/3"}),
    ("a://{+x}", "a://", None),
    ("a://{x}/", "a://1", None),
    ("a://{x}/", "a://1/", {"x": "1"}),
    ("a://{x}/{y}", "a://1/2", {"x": "1", "y": "2"}),
    ("a://{x}/{y}", "a://1", None),
    ("a://{x}/{y}", "a:///2", None),
    ("a://{x}/{y}", "a://1/2/3", None),
    ("a://{x}/{+y}", "a://1/2/3", {"x": "1", "y": "2/3"}),
    ("a://{+x}/z", "a://1/z/z", {"x": "1/z"}),
    ("a://{x}-{y}.txt", "a://1-2.txt", {"x": "1", "y": "2"}),
    ("a://{x}-{y}.txt", "a://1-2-3.txt", {"x": "1", "y": "2-3"}),
    ("a://{x}.txt", "a://.txt", None),
    ("a://{x}.txt", "a://.txt.txt", {"x": ".txt"}),
    ("a://{x}ab", "a://ab", None),
    ("a://b/{x}/c/{y}/d", "a://b/1/c/2/d", {"x": "1", "y": "2"}),
    ("a://b/{x}/c/{y}/d", "a://b/1/c/2/e", None),
    ("a://b?q={x}", "a://b?q=1", {"x": "1"}),
]


@pytest.mark.parametrize(("template", "uri", "wanted"), MATCHES)
def test_matching(template: str, uri: str, wanted: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == wanted


@pytest.mark.parametrize(
    "template",
    [
        "a://{x",
        "a://x}",
        "a://{}",
        "a://{x}{y}",
        "a://{x}/{x}",
        "a://{?x}",
        "a://{x*}",
        "a://{{x}}",
        "a://{x,y}",
    ],
)
def test_a_template_that_cannot_be_matched_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"resource 'a://.*': "):
        UriTemplate(template)


SIZE = 50_000


@pytest.mark.parametrize(
    "template",
    [
        "a://{x}/{y}",
        "a://{+x}/b/{+y}/c",
        "a://{a}-{b}-{c}-{d}-{e}-{f}",
        "a://{+a}aab{+b}aab{+c}aab",
    ],
)
@pytest.mark.parametrize(
    "filling", ["a", "/", "-", "a/", "%", "%41", "aa", "é", "/b", "a-"]
)
def test_a_long_uri_takes_no_long_time(template: str, filling: str) -> None:
    uri = "a://" + (filling * SIZE)[:SIZE]
    matcher = UriTemplate(template)
    begun = time.perf_counter()
    matcher.match(uri)
    assert time.perf_counter() - begun < 0.01 * (5 if "%" in filling else 1)
