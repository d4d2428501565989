"""Fleets simulated so fast that the judge can be watched for years: for the false-positive suite and `kintsugi simulate`.

An engine here moves from event to event (an arrival, a prefill's end, a request's end), so a busy minute costs a
millisecond. What the judge gets are typed samples, never pages. `world` is one pool; `trial` runs the judge over it;
`kinds` holds the table of faults with the bar of each; `suite` adds everything up over two processes.
"""
