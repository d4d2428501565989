"""`dead`: restarts in place are the kubelet's; only what it can't cure is Sick, and never by exit code."""

from typing import Any

from kintsugi.core.evidence import Memory
from kintsugi.core.finding import Detector, InstanceVerdict, Severity, Verdict
from kintsugi.core.snapshot import Failure, Termination
from tests.unit.core.staging import EPOCH, Engine, Rank, Stage, deployment, only


class Pod:
    """One pod whose life is set by hand."""

    def __init__(self, stage: Stage | None = None) -> None:
        self.stage = stage or Stage(deployment(engine={"startBudgetSeconds": 1800}))
        self.engine = Engine([Rank(running=1)])
        self.fields: dict[str, Any] = {"started_at": EPOCH - 5_000, "ready_since": EPOCH - 4_000}

    def go(self, seconds: float, **fields: Any) -> InstanceVerdict:
        """Let time pass with these fields of the pod."""
        self.fields.update(fields)
        verdict = None
        for _ in range(max(1, round(seconds / self.stage.step))):
            self.engine.ranks[0].steps += 50
            up = self.fields.get("ready", True)
            shown: str | Failure = self.engine.page() if up else Failure.REFUSED
            verdict = only(self.stage.look({"pod-a": shown}, pod_a=self.fields))
        assert verdict is not None
        return verdict

    def crash(self, code: int = 1) -> None:
        """The container ends; the kubelet has not started it again."""
        ended = Termination(code, "Error", "", EPOCH + self.stage.mono)
        self.fields.update(ready=False, ready_since=None, started_at=None, last_termination=ended)

    def start(self) -> None:
        """The kubelet starts it in place."""
        self.engine = Engine([Rank(running=1)], start=EPOCH + self.stage.mono)
        self.fields.update(started_at=EPOCH + self.stage.mono, restarts=self.fields.get("restarts", 0) + 1)

    def ready(self) -> None:
        self.fields.update(ready=True, ready_since=EPOCH + self.stage.mono)


def test_a_crash_is_first_the_kubelets_and_is_verified_afterwards() -> None:
    pod = Pod()
    pod.go(60)
    pod.crash()

    down = pod.go(30)
    pod.start()
    starting = pod.go(60)
    pod.ready()
    up = pod.go(30)

    assert (down.verdict, down.reason) == (Verdict.SUSPECT, "ContainerEnded")
    assert down.findings[0].serves_nothing
    assert starting.verdict is Verdict.STARTING
    assert up.verdict is Verdict.HEALTHY
    assert [(f.reason, f.severity) for f in up.findings] == [("RestartedInPlace", Severity.INFO)]
    assert Detector.DEAD in up.cleared


def test_not_ready_again_within_the_start_budget_is_sick() -> None:
    pod = Pod(Stage(deployment(engine={"startBudgetSeconds": 300})))
    pod.go(60)
    pod.crash()
    pod.go(30)
    pod.start()

    before = pod.go(200)
    after = pod.go(120)

    assert before.sick() is None
    finding = after.sick()
    assert finding is not None
    assert finding.reason == "NotReadyAgain"
    assert finding.removable
    assert finding.serves_nothing
    assert finding.silent_seconds > 300


def test_the_third_restart_in_half_an_hour_is_sick_and_the_second_is_not() -> None:
    pod = Pod()
    pod.go(60)
    verdicts = []
    for _ in range(3):
        pod.crash()
        pod.go(20)
        pod.start()
        pod.go(40)
        pod.ready()
        verdicts.append(pod.go(300))

    assert [v.verdict for v in verdicts[:2]] == [Verdict.HEALTHY, Verdict.HEALTHY]
    assert verdicts[2].reason == "RestartsRepeat"


def test_three_restarts_over_hours_are_not_sick() -> None:
    pod = Pod()
    for _ in range(4):
        pod.go(1_200)
        pod.crash()
        pod.go(20)
        pod.start()
        pod.go(40)
        pod.ready()

    assert pod.go(60).verdict is Verdict.HEALTHY


def test_exit_code_zero_is_as_dead_as_any_other() -> None:
    verdicts = []
    for code in (0, 137):
        pod = Pod()
        pod.go(60)
        pod.crash(code)
        verdicts.append(pod.go(2_000).verdict)

    assert verdicts == [Verdict.SICK, Verdict.SICK]


def test_a_pod_that_failed_as_a_whole_is_sick_at_once() -> None:
    pod = Pod()
    pod.go(60)
    pod.crash()

    verdict = pod.go(5, phase="Failed", phase_reason="Evicted")

    assert verdict.reason == "PodEnded"
    assert "Evicted" in verdict.message


def test_a_pod_that_never_was_ready_is_starting_however_it_fails() -> None:
    pod = Pod()
    fields = {"ready": False, "ready_since": None, "started_at": None}

    verdict = pod.go(
        3_000, waiting_reason="CrashLoopBackOff", waiting_message="back-off", restarts=9, **fields
    )

    assert verdict.verdict is Verdict.STARTING
    assert verdict.reason == "CrashLoopBackOff"
    assert verdict.findings[0].severity is Severity.ADVICE


def test_a_start_over_its_budget_is_advice() -> None:
    pod = Pod()

    verdict = pod.go(3_000, ready=False, ready_since=None, started_at=EPOCH)

    assert verdict.verdict is Verdict.STARTING
    assert verdict.reason == "StartOverBudget"


def test_a_process_that_runs_and_is_not_ready_is_not_dead() -> None:
    pod = Pod()
    pod.go(60)

    for _ in range(600):
        verdict = only(
            pod.stage.look({"pod-a": Failure.CONNECT_TIMEOUT}, pod_a={**pod.fields, "ready": False})
        )

    assert verdict.verdict is Verdict.UNKNOWN
    assert not any(f.detector is Detector.DEAD for f in verdict.findings)


def test_a_ready_pod_that_refuses_is_suspect_and_not_sick() -> None:
    pod = Pod()
    pod.go(60)

    for _ in range(600):
        verdict = only(pod.stage.look({"pod-a": Failure.REFUSED}, pod_a=pod.fields))

    assert (verdict.verdict, verdict.reason) == (Verdict.SUSPECT, "Refused")


def test_a_forgotten_past_makes_a_crashing_pod_a_starting_one() -> None:
    pod = Pod()
    pod.go(60)
    pod.crash()
    pod.stage.memory = Memory()

    assert pod.go(3_000).verdict is Verdict.STARTING


def test_a_pod_being_deleted_is_nobodys_patient() -> None:
    pod = Pod()
    pod.go(60)
    pod.crash()

    verdict = pod.go(3_000, deleting=True)

    assert (verdict.verdict, verdict.reason, verdict.findings) == (Verdict.UNKNOWN, "Terminating", ())
