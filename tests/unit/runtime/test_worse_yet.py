"""A victim that nobody may remove, and that then stops to serve at all."""

from kintsugi.testing.rehearsal import WARM_SECONDS, Rehearsal


async def test_the_only_instance_that_is_left_alone_while_it_serves_is_replaced_once_it_hangs() -> None:
    scene = Rehearsal(nodes=1, gpus=1)
    scene.deploy({"long": 1})
    await scene.run(WARM_SECONDS)
    (name,) = scene.names_of("long")
    scene.engines.change(name, fragmentation=0.4)
    await scene.run_until(lambda _: scene.withheld().get(name) == "poolOfOne", 1800.0)
    scene.engines.change(name, hung=True)
    await scene.run_until(lambda _: scene.removals() == [name], 900.0)
    await scene.run(120.0)
    assert len(scene.names_of("long")) == 1
    assert scene.names_of("long") != [name]
