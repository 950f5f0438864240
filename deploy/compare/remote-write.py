"""Sends OTLP metrics of which every value is known, and looks whether a Prometheus has them all.

Usage: remote-write.py send URL-OF-OTLP | check URL-OF-PROMETHEUS | check-victoria URL-OF-VICTORIAMETRICS | same URL-OF-PROMETHEUS URL-OF-ANOTHER
"""

import json
import sys
import time
import urllib.parse
import urllib.request

SERIES = 100
ROUNDS = 80
# Seconds between the samples of a series, and between requests.
STEP = 15
PAUSE = 0.1


def start():
    # The same for sender and checker when one follows the other within the hour; older than any lookback would hide.
    return int(time.time()) // 3600 * 3600 - 1800


def request(begin, round_number):
    nanos = str((begin + round_number * STEP) * 10**9)

    def attributes(series):
        return [{"key": "series", "value": {"stringValue": f"s{series}"}}]

    gauge = [
        {"attributes": attributes(n), "timeUnixNano": nanos, "asDouble": n + round_number / 8}
        for n in range(SERIES)
    ]
    counter = [
        {"attributes": attributes(n), "timeUnixNano": nanos, "asInt": str(n * round_number)} for n in range(SERIES)
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
        for n in range(10)
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
        for n in range(10)
    ]
    metrics = [
        {"name": "check.gauge", "unit": "By", "gauge": {"dataPoints": gauge}},
        {"name": "check.counter", "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": counter}},
        {"name": "check.histogram", "histogram": {"aggregationTemporality": 2, "dataPoints": histogram}},
        {"name": "check.native", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": native}},
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "check"}}]}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}


def expected():
    """Values by name and series, oldest first."""
    want = {}
    for n in range(SERIES):
        want["check_gauge_bytes", f"s{n}", ""] = [n + r / 8 for r in range(ROUNDS)]
        want["check_counter_total", f"s{n}", ""] = [n * r for r in range(ROUNDS)]
    for n in range(10):
        want["check_histogram_count", f"s{n}", ""] = [3 * r for r in range(ROUNDS)]
        want["check_histogram_sum", f"s{n}", ""] = [4.5 * r for r in range(ROUNDS)]
        for le, times in [("1", 1), ("2.5", 2), ("+Inf", 3)]:
            want["check_histogram_bucket", f"s{n}", le] = [times * r for r in range(ROUNDS)]
    return want


def send(url):
    begin = start()
    for round_number in range(ROUNDS):
        body = json.dumps(request(begin, round_number)).encode()
        post = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        while True:
            try:
                with urllib.request.urlopen(post) as answer:
                    assert answer.status == 200, answer.status
                break
            except OSError:
                # It is being started again: what was not acknowledged is sent again.
                time.sleep(PAUSE)
        time.sleep(PAUSE)


def query(url, promql):
    text = urllib.parse.urlencode({"query": promql, "time": start() + ROUNDS * STEP})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}") as answer:
        return json.load(answer)["data"]["result"]


def found(url):
    have = {}
    for series in query(url, '{__name__=~"check_.*", __name__!="check_native"}[2h]'):
        labels = series["metric"]
        # Prometheus writes whole bounds with a fraction.
        bound = labels.get("le", "").removesuffix(".0")
        # What was under way when sluice was killed comes twice; Prometheus keeps one of two samples with one time,
        # VictoriaMetrics both.
        values = {at: float(value) for at, value in series.get("values", [])}
        have[labels["__name__"], labels["series"], bound] = list(values.values())
    return have


def check(url, is_prometheus=True):
    want = expected()
    deadline = time.time() + 30
    while (have := found(url)) != want and time.time() < deadline:
        time.sleep(0.5)
    missing = {key for key in want if have.get(key) != want[key]}
    beside = have.keys() - want.keys()
    native = query(url, "check_native[2h]")
    natives = sum(len(series.get("histograms", [])) for series in native)
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        metrics = answer.read().decode().splitlines()
    late = [
        line
        for line in metrics
        if line.startswith(("prometheus_tsdb_out_of_order_samples_total", "prometheus_tsdb_too_old_samples_total"))
        and not line.endswith(" 0")
    ]
    samples = sum(map(len, have.values()))
    print(f"{url}: {samples} samples of {len(have)} series, {natives} native histograms; {len(missing)} series differ, "
          f"{len(beside)} are strange; {late or 'none out of order'}")
    for key in sorted(missing)[:5]:
        print(f"  {key}: {have.get(key)} instead of {want[key]}")
    # VictoriaMetrics does not keep native histograms as such.
    return not missing and not beside and not late and (natives == 10 * ROUNDS or not is_prometheus)


def scraped(url, at):
    """What the job "self" has scraped in five seconds: values and times by series, with what relaying adds to none."""
    text = urllib.parse.urlencode({"query": '{job="self"}[5s]', "time": at})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}") as answer:
        result = json.load(answer)["data"]["result"]
    return {json.dumps(series["metric"], sort_keys=True): series["values"] for series in result}


def same(first, second):
    # Late enough for what was scraped to have gone through both queues.
    time.sleep(8)
    at = time.time() - 6
    a, b = scraped(first, at), scraped(second, at)
    different = [key for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
    print(f"{sum(map(len, a.values()))} scraped samples of {len(a)} series; {len(different)} series differ in {second}")
    for key in different[:5]:
        print(f"  {key}: {a.get(key)} became {b.get(key)}")
    return bool(a) and not different


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2])
    elif sys.argv[1] == "same":
        sys.exit(not same(*sys.argv[2:]))
    else:
        sys.exit(not check(sys.argv[2], is_prometheus=sys.argv[1] == "check"))
