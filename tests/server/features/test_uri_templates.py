"""Which URIs a template matches, and the values it extracts, in linear time."""

import pytest

from mcp_trio.server.features.uri_template import UriTemplate
from tests.support.growth import assert_linear
from tests.support.samples import MATCHES


@pytest.mark.parametrize(("template", "uri", "wanted"), MATCHES)
def test_a_uri_gives_the_values_of_its_templates_variables(
    template: str, uri: str, wanted: dict[str, str] | None
) -> None:
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
def test_a_long_uri_is_matched_in_linear_time(template: str, filling: str) -> None:
    def uri_of(size: int) -> str:
        return "a://" + (filling * size)[:size]

    assert_linear(UriTemplate(template).match, uri_of, SIZE)
