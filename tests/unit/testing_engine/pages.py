"""Reading a page with prometheus_client's own parser."""

from prometheus_client.parser import text_string_to_metric_families


def samples(page: str, *, hide: tuple[str, ...] = ("engine", "model_name")) -> dict[str, float]:
    """Every sample as `name|label=value|...` without the labels in `hide`."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = sorted((k, v) for k, v in sample.labels.items() if k not in hide)
            found[sample.name + "".join(f"|{k}={v}" for k, v in labels)] = sample.value
    return found
