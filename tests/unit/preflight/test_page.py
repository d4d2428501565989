from kintsugi.core.preflight.page import ARTICLE, page
from kintsugi.core.preflight.registry import RULES
from tests.unit.preflight.rules_page import PAGE


def test_the_page_of_rules_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make generate`"


def test_every_claim_of_the_article_that_a_manifest_can_express_has_a_rule() -> None:
    answered = {claim for rule in RULES for claim in rule.claims}
    assert set(ARTICLE) == {f"A{number}" for number in range(1, 25)}
    assert set(ARTICLE) - answered == {"A6"}, "A6 asks for a comparison, which no manifest can express"
