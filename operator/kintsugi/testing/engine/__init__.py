"""The simulated engine. See `kintsugi.testing` for how to use it."""

from kintsugi.testing.engine.coarse import CoarseLoad
from kintsugi.testing.engine.faults import FAULTS, Fault, FaultError, parse_fault, parse_fault_argument
from kintsugi.testing.engine.model import EngineModel
from kintsugi.testing.engine.server import EngineServer
from kintsugi.testing.engine.serving import serve_engine
from kintsugi.testing.engine.settings import ServerSettings
from kintsugi.testing.engine.shape import EngineShape, StepCost
from kintsugi.testing.engine.simulated import SimulatedEngine, Ticket

__all__ = [
    "FAULTS",
    "CoarseLoad",
    "EngineModel",
    "EngineServer",
    "EngineShape",
    "Fault",
    "FaultError",
    "ServerSettings",
    "SimulatedEngine",
    "StepCost",
    "Ticket",
    "parse_fault",
    "parse_fault_argument",
    "serve_engine",
]
