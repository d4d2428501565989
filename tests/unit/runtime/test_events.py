"""Events stand where people look for them: beside the deployment that they are about."""

from kintsugi.testing.rehearsal import WARM_SECONDS, Rehearsal


async def test_events_name_the_deployment_and_its_namespace() -> None:
    scene = Rehearsal(nodes=4, gpus=1)
    scene.deploy()
    await scene.run(WARM_SECONDS)
    scene.engines.change(scene.names_of("short")[0], fragmentation=0.4)
    await scene.run_until(lambda _: any(e.reason == "Withdrawn" for e in scene.cluster.events), 1200.0)
    ours = [event for event in scene.cluster.events if event.reason in ("InstanceSick", "Withdrawn")]
    assert {event.about for event in ours} == {"DeepSeekV4Deployment/llm/chat"}
