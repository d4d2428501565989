"""Speculative decoding: `--speculative-config` from what the user says, else what the checkpoint carries."""

import json
from typing import Any, Final

from kintsugi.api.spec import Speculative
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.choice import Choice

FLAG: Final = "--speculative-config"
DRAFT_TOKENS: Final = {"dspark": 7, "mtp": 1, "ngram": 3}
"""Drafts per step where neither user nor recipe says: DSpark's of the V4 recipes, the least of MTP's; NGram's is
assumed."""
MTP_SINCE: Final = EngineVersion(0, 22)
"""MTP of V4 became dependable here (https://github.com/vllm-project/vllm/pull/43385): before it, and where the version
is not known, only those draft with it who ask for it."""
MTP_FAMILIES: Final = "deepseek-v4"
"""Families whose recipes draft by themselves; V3 and R1 have MTP heads, but their recipes leave them off."""


def speculative_config(said: Speculative | None, choice: Choice) -> str | None:
    """The JSON of `--speculative-config`; None: no drafting."""
    if said is None:
        return _by_recipe(choice)
    if said.method == "Disabled":
        return None
    config = _config(said.method.lower(), choice)
    if said.num_tokens is not None:
        config["num_speculative_tokens"] = said.num_tokens
    return json.dumps(config, separators=(",", ":"))


def _by_recipe(choice: Choice) -> str | None:
    if choice.recipe is None or choice.model is None or not choice.understood(FLAG):
        return None
    if choice.model.draft == "MTP":
        dependable = choice.version is not None and choice.version >= MTP_SINCE
        if not dependable or not choice.model.family.startswith(MTP_FAMILIES):
            return None
    return choice.recipe.speculative_config


def _config(method: str, choice: Choice) -> dict[str, Any]:
    """What the recipe says of that method, else the least that the engine needs."""
    by_recipe = choice.recipe.speculative_config if choice.recipe else None
    known: dict[str, Any] = json.loads(by_recipe) if by_recipe else {}
    if known.get("method") == method:
        return known
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": DRAFT_TOKENS[method]}
    return config | ({"draft_sample_method": "probabilistic"} if method == "dspark" else {})
