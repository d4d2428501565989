"""`python -m tests.unit.pod.write_golden`: the golden pods anew; read the diff before you commit it."""

import yaml

from tests.unit.core.decision.test_rendering import GOLDEN as CHILDREN
from tests.unit.core.decision.test_rendering import GOLDEN_SPECS, rendered
from tests.unit.pod.test_groups import GOLDEN as GROUP
from tests.unit.pod.test_groups import document

if __name__ == "__main__":
    for name, body in GOLDEN_SPECS.items():
        (CHILDREN / f"{name}.yaml").write_text(yaml.safe_dump_all(rendered(body), sort_keys=True))
    GROUP.write_text(yaml.safe_dump(document()))
