"""Sends OTLP metrics of which everything is known, and looks whether a Prometheus has them all: times, values, native histograms, exemplars.

Usage: remote-write.py send URL-OF-OTLP | check URL-OF-PROMETHEUS | check-victoria URL-OF-VICTORIAMETRICS
       remote-write.py same URL-OF-OTLP URL-OF-PROMETHEUS URL-OF-ANOTHER [URL-OF-THE-ONE-THAT-VMAGENT-SENDS-TO]
       remote-write.py equal SINCE UNTIL JOB URL URL-OF-ANOTHER
       remote-write.py relay PORT PORT-OF-PROMETHEUS FILE
"""

import asyncio
import json
import math
import sys
import time
import urllib.parse
import urllib.request

SERIES = 100
ROUNDS = 160
# Seconds between the samples of a series, and between requests.
STEP = 10
PAUSE = 0.1
# Requests that come within the 200 ms that a batch takes.
MOST_IN_A_BATCH = 3
# Series of histograms, and counters with exemplars.
FEW = 10
# Seconds for which `same` sends and looks.
WINDOW = 5
# Seconds by which the relay holds back answers: a destination that is far away, to which more connections carry more.
FAR = 0.1


def start():
    # The same for sender and checker when one follows the other within the hour; older than any lookback would hide.
    return int(time.time()) // 3600 * 3600 - 1800


def exemplar_ids(series, round_number):
    return {"trace_id": f"{series + 1:016x}{round_number + 1:016x}", "span_id": f"{round_number + 1:016x}"}


def request(seconds, round_number, job="check"):
    nanos = str(round(seconds * 1000) * 10**6)

    def exemplars(series):
        ids = exemplar_ids(series, round_number)
        one = {"timeUnixNano": nanos, "asDouble": round_number, "traceId": ids["trace_id"], "spanId": ids["span_id"]}
        return {"exemplars": [one]} if series < FEW else {}

    def attributes(series):
        return [{"key": "series", "value": {"stringValue": f"s{series}"}}]

    gauge = [
        {"attributes": attributes(n), "timeUnixNano": nanos, "asDouble": n + round_number / 8}
        for n in range(SERIES)
    ]
    counter = [
        {"attributes": attributes(n), "timeUnixNano": nanos, "asInt": str(n * round_number), **exemplars(n)}
        for n in range(SERIES)
    ]
    histogram = [
        {
            "attributes": attributes(n),
            "timeUnixNano": nanos,
            "count": str(3 * round_number),
            "sum": 4.5 * round_number,
            "bucketCounts": [str(round_number)] * 3,
            "explicitBounds": [1, 2.5],
        }
        for n in range(FEW)
    ]
    native = [
        {
            "attributes": attributes(n),
            "timeUnixNano": nanos,
            "count": str(2 * round_number),
            "sum": 1.5 * round_number,
            "scale": 3,
            "positive": {"offset": -1, "bucketCounts": [str(round_number), str(round_number)]},
        }
        for n in range(FEW)
    ]
    metrics = [
        {"name": f"{job}.gauge", "unit": "By", "gauge": {"dataPoints": gauge}},
        {"name": f"{job}.counter", "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": counter}},
        {"name": f"{job}.histogram", "histogram": {"aggregationTemporality": 2, "dataPoints": histogram}},
        {"name": f"{job}.native", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": native}},
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": job}}]}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}


def expected():
    """Times and values by name and series, oldest first."""
    want = {}
    begin = start()
    for n in range(SERIES):
        want["check_gauge_bytes", f"s{n}", ""] = [n + r / 8 for r in range(ROUNDS)]
        want["check_counter_total", f"s{n}", ""] = [n * r for r in range(ROUNDS)]
    for n in range(FEW):
        want["check_histogram_count", f"s{n}", ""] = [3 * r for r in range(ROUNDS)]
        want["check_histogram_sum", f"s{n}", ""] = [4.5 * r for r in range(ROUNDS)]
        for le, times in [("1", 1), ("2.5", 2), ("+Inf", 3)]:
            want["check_histogram_bucket", f"s{n}", le] = [times * r for r in range(ROUNDS)]
    return {key: [(begin + r * STEP, value) for r, value in enumerate(values)] for key, values in want.items()}


def expected_natives():
    """Times, counts, sums and buckets by series. Of scale 3: a bucket ends at 2 to the power of an eighth of its number."""
    edges = [2 ** (n / 8) for n in (-1, 0, 1)]

    def native(r):
        buckets = [(edges[0], edges[1], r), (edges[1], edges[2], r)] if r else []
        return start() + r * STEP, 2 * r, 1.5 * r, buckets

    return {f"s{n}": [native(r) for r in range(ROUNDS)] for n in range(FEW)}


def expected_exemplars():
    """Times, values and labels by series. That of the first round is there as well, though its value is 0."""
    return {f"s{n}": [(start() + r * STEP, r, exemplar_ids(n, r)) for r in range(ROUNDS)] for n in range(FEW)}


def post(url, message):
    request = urllib.request.Request(url, json.dumps(message).encode(), {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                assert answer.status == 200, answer.status
            return
        except OSError:
            # It is being started again: what was not acknowledged is sent again.
            time.sleep(PAUSE)


def send(url):
    begin = start()
    for round_number in range(ROUNDS):
        post(url, request(begin + round_number * STEP, round_number))
        time.sleep(PAUSE)


def api(url, path, **parameters):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
        return json.load(answer)["data"]


def query(url, promql):
    return api(url, "query", query=promql, time=start() + ROUNDS * STEP)["result"]


def found(url):
    have = {}
    for series in query(url, '{__name__=~"check_.*", __name__!~"check_native.*"}[2h]'):
        labels = series["metric"]
        # Prometheus writes whole bounds with a fraction.
        bound = labels.get("le", "").removesuffix(".0")
        # What was under way when sluice was killed comes twice; Prometheus keeps one of two samples with one time,
        # VictoriaMetrics both.
        values = {at: float(value) for at, value in series.get("values", [])}
        have[labels["__name__"], labels["series"], bound] = list(values.items())
    return have


def natives(url):
    have = {}
    for series in query(url, "check_native[2h]"):
        have[series["metric"]["series"]] = [
            (
                at,
                float(native["count"]),
                float(native["sum"]),
                [(float(low), float(high), float(count)) for _, low, high, count in native.get("buckets", [])],
            )
            for at, native in series.get("histograms", [])
        ]
    return have


def exemplars(url, promql, begin, end):
    data = api(url, "query_exemplars", query=promql, start=begin, end=end)
    return {
        json.dumps(series["seriesLabels"], sort_keys=True): [
            (one["timestamp"], float(one["value"]), one["labels"]) for one in series["exemplars"]
        ]
        for series in data
    }


def is_close(have, want):
    """Bounds of buckets are written with fewer digits than they are computed with."""
    if isinstance(want, (list, tuple)):
        return len(have) == len(want) and all(map(is_close, have, want))
    return math.isclose(have, want)


def different(have, want, is_same=lambda have, want: have == want):
    """How many series are not as expected, and the first of them on the standard output."""
    keys = sorted(key for key in have.keys() | want.keys() if not is_same(have.get(key, []), want.get(key, [])))
    for key in keys[:3]:
        print(f"  {key}: {have.get(key)} instead of {want.get(key)}")
    return len(keys)


def check_more(url):
    """Native histograms and exemplars."""
    have, want = natives(url), expected_natives()
    wrong = different(have, want, is_close)
    print(f"{url}: {sum(map(len, have.values()))} native histograms of {len(have)} series; {wrong} series differ")
    found = exemplars(url, "check_counter_total", start(), start() + ROUNDS * STEP)
    found = {json.loads(labels)["series"]: of_series for labels, of_series in found.items()}
    wrong_exemplars = different(found, expected_exemplars())
    print(f"{url}: {sum(map(len, found.values()))} exemplars of {len(found)} series; {wrong_exemplars} series differ")
    return not wrong and not wrong_exemplars


def check(url, is_prometheus=True):
    want = expected()
    deadline = time.time() + 30
    while (have := found(url)) != want and time.time() < deadline:
        time.sleep(0.5)
    missing = {key for key in want if have.get(key) != want[key]}
    beside = have.keys() - want.keys()
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        metrics = answer.read().decode().splitlines()
    late = sum(
        float(line.rsplit(" ", 1)[1])
        for line in metrics
        if line.startswith(("prometheus_tsdb_out_of_order_samples_total", "prometheus_tsdb_too_old_samples_total"))
    )
    samples = sum(map(len, have.values()))
    # What was under way when sluice was killed comes again, whole, at most the last request of each lane: nobody knows whether it was taken. If it was, the last sample
    # of each series in it has the time of the one that is there, and those before it in the same request are out of order.
    again = (MOST_IN_A_BATCH - 1) * len(have)
    print(f"{url}: {samples} samples of {len(have)} series; {len(missing)} series differ, "
          f"{len(beside)} are strange; {late:.0f} out of order (at most {again} may be, for sluice was killed)")
    is_more = not is_prometheus or check_more(url)
    for key in sorted(missing)[:5]:
        print(f"  {key}: {have.get(key)} instead of {want[key]}")
    # VictoriaMetrics makes buckets of its own of native histograms, and has no exemplars.
    return is_more and not missing and not beside and late <= again


def seen(url, job, begin, end):
    """What a job has between these times: times, values and native histograms by series."""
    result = api(url, "query", query=f'{{job="{job}"}}[{round(1000 * (end - begin))}ms]', time=end)["result"]
    return {
        json.dumps(series["metric"], sort_keys=True): series.get("values", []) + series.get("histograms", [])
        for series in result
    }


def same(since, otlp, first, second, agent=None):
    """`since`: after the first Prometheus was started again, which sends on nothing that is older, and before sluice was killed."""
    end = time.time() + WINDOW
    rounds = 0
    while time.time() < end:
        post(otlp, request(time.time(), rounds, "live"))
        rounds += 1
        time.sleep(PAUSE)
    # Late enough for all of it to have gone through both queues.
    time.sleep(8)
    is_same = True
    for job, url in [("self", first), ("live", first), ("agent", agent)]:
        if not url:
            continue
        a, b = seen(url, job, float(since), end), seen(second, job, float(since), end)
        wrong = different(b, a)
        print(f"{url}: {sum(map(len, a.values()))} samples of {len(a)} series of {job}; {wrong} series differ in {second}")
        is_same &= bool(a) and not wrong
    a, b = (exemplars(url, "live_counter_total", end - WINDOW, end) for url in (first, second))
    wrong = different(b, a)
    print(f"{first}: {sum(map(len, a.values()))} exemplars of {len(a)} series; {wrong} series differ in {second}")
    return is_same and bool(a) and not wrong


def equal(since, until, job, first, second):
    """Whether both have the same of a job. What comes twice after a kill has the same time and value."""

    def once(url):
        series = seen(url, job, float(since), float(until))
        return {labels: sorted({json.dumps(sample) for sample in samples}) for labels, samples in series.items()}

    a, b = once(first), once(second)
    wrong = different(b, a)
    print(f"{first}: {sum(map(len, a.values()))} samples of {len(a)} series of {job}; {wrong} series differ in {second}")
    return bool(a) and not wrong


async def relay(port, target, path):
    """To a server that is FAR away; keeps in the file how many connections there were at most at a time."""
    connections = most = 0

    async def pass_on(reader, writer, delay):
        try:
            while data := await reader.read(1 << 16):
                await asyncio.sleep(delay)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def serve(reader, writer):
        nonlocal connections, most
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        connections += 1
        if connections > most:
            most = connections
            with open(path, "w") as file:
                file.write(str(most))
        await asyncio.gather(pass_on(reader, to_server, 0), pass_on(from_server, writer, FAR))
        connections -= 1

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2])
    elif sys.argv[1] == "relay":
        asyncio.run(relay(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    elif sys.argv[1] == "equal":
        sys.exit(not equal(*sys.argv[2:]))
    elif sys.argv[1] == "same":
        sys.exit(not same(*sys.argv[2:]))
    else:
        sys.exit(not check(sys.argv[2], is_prometheus=sys.argv[1] == "check"))
