"""What users and tests rehearse with: simulated engines, traffic, clocks and clusters.

A simulated engine is vLLM without a model or a GPU: the same `/metrics` page (names, labels, bucket edges of
vLLM 0.32), the same OpenAI-compatible protocol, the same behaviour under load, and faults to switch on.

* Pure, in a test's own time: `kintsugi.testing.engine.SimulatedEngine`::

      engine = SimulatedEngine(seed=1)                 # time begins at 0.0
      ticket = engine.submit(now=0.0, prompt_tokens=200, output_tokens=40)
      engine.inject(ThroughputDrop(percent=60), now=10.0)
      text = engine.page(now=15.0)                     # the /metrics page
      engine.counters[0].inter_token_latency.total     # the truth behind it

* Over HTTP, in a test's event loop: `kintsugi.testing.engine.serve_engine`::

      async with serve_engine(seed=1) as server:
          server.url                                   # http://127.0.0.1:PORT
          server.inject(Hang())                        # or POST {server.admin_url}/simulator/faults
          server.clear("hang")
          server.journal.of("swallowed")               # request ids a hung engine took

* As a process: `kintsugi simulate-engine --model M --served-model-name N --port 8000 --fault slowStart=30`.
  Faults over HTTP on the admin port, 8001: `POST /simulator/faults {"fault": "fragmentation", "percent": 60,
  "overSeconds": 30}`, `DELETE /simulator/faults[/NAME]`, `GET /simulator/state`, `POST /simulator/compact`.

* Without requests, for fleets of thousands: `SimulatedEngine(load=CoarseLoad(requests_per_second=4))` moves the
  same counters in closed form.

* Traffic: `python -m kintsugi.testing.traffic --target short=http://... --rate 4 --report requests.jsonl`, or
  `kintsugi.testing.traffic.generate`.

Faults are listed in `kintsugi.testing.engine.faults.FAULTS`, with their fields.
"""
