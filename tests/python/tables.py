"""Sends attributes of every type in every table, and has every engine give them back exactly.

    tables.py GATEWAY DIRECTORY S3 BUCKET PREFIX

GATEWAY takes OTLP/HTTP; what it writes to DIRECTORY and to the bucket of the server at S3 must be the same rows.
"""

import base64
import glob
import json
import math
import os
import sys
import tempfile
import time
import urllib.request

gateway, directory, s3, bucket, prefix = sys.argv[1:]
ROWS = 50
TIME = 1763758800123456789


def any_value(kind, value):
    if kind == "s":
        return {"stringValue": value}
    if kind == "b":
        return {"boolValue": value}
    if kind == "i":
        return {"intValue": str(value)}
    if kind == "d":
        return {"doubleValue": value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}[value]}
    if kind == "y":
        return {"bytesValue": base64.b64encode(value).decode()}
    if kind == "a":
        return {"arrayValue": {"values": [any_value(*item) for item in value]}}
    if kind == "m":
        return {"kvlistValue": {"values": [{"key": key, "value": any_value(*item)} for key, item in value]}}
    return {}


# Every type, and every type within others: (key, (type, value)).
NESTED = [("s", "x\n\"é\\"), ("b", False), ("i", -5), ("d", 2.0), ("d", math.inf), ("y", b"\x00\xff"), ("n", None)]
ATTRIBUTES = [
    ("string", ("s", "text é")),
    ("empty", ("s", "")),
    ("bool", ("b", True)),
    ("int", ("i", -(2**63))),
    ("double", ("d", 0.1)),
    ("whole double", ("d", 3.0)),
    ("large double", ("d", 1.7976931348623157e308)),
    ("infinite", ("d", -math.inf)),
    ("bytes", ("y", bytes(range(256)))),
    ("array", ("a", NESTED + [("a", NESTED), ("m", [("k", ("i", 1))])])),
    ("map", ("m", [("$bytes", ("s", "none")), ("a", ("a", NESTED)), ("", ("d", 1.0))])),
    ("nothing", ("n", None)),
]
KEY_VALUES = [{"key": key, "value": any_value(*value)} for key, value in ATTRIBUTES]


def read_json(value):
    """The typed value that JSON in a map stands for: docs/parquet-schema.md."""
    if value is None:
        return ("n", None)
    if isinstance(value, bool):
        return ("b", value)
    if isinstance(value, int):
        return ("i", value)
    if isinstance(value, float):
        return ("d", value)
    if isinstance(value, str):
        return ("s", value)
    if isinstance(value, list):
        return ("a", [read_json(item) for item in value])
    if list(value) == ["$bytes"]:
        return ("y", base64.b64decode(value["$bytes"]))
    if list(value) == ["$double"]:
        return ("d", float(value["$double"]))
    return ("m", [(key.removeprefix("$"), read_json(item)) for key, item in value.items()])


def read_text(kind, text):
    if kind in "am":
        return read_json(json.loads(text))
    reader = {"s": str, "b": lambda text: text == "true", "i": int, "d": float, "y": base64.b64decode, "n": lambda _: None}
    return (kind, reader[kind](text))


def read_map(pairs, types):
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    pairs = [tuple(pair.values()) if isinstance(pair, dict) else tuple(pair) for pair in pairs]
    assert len(pairs) == len(types), (pairs, types)
    return [(key, read_text(kind, text)) for (key, text), kind in zip(pairs, types)]


def post(path, body):
    request = urllib.request.Request(
        f"http://{gateway}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def send():
    resource = {"attributes": KEY_VALUES + [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    scope = {"name": "scope", "version": "1", "attributes": KEY_VALUES}
    identity = {"traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060708"}
    rows = range(ROWS)
    log = [
        {"timeUnixNano": str(TIME + n), "body": any_value("i", n), "attributes": KEY_VALUES, **identity} for n in rows
    ]
    span = [
        {
            **identity,
            "name": f"span {n}",
            "kind": 2,
            "startTimeUnixNano": str(TIME + n),
            "endTimeUnixNano": str(TIME + 2 * n),
            "attributes": KEY_VALUES,
            "events": [{"timeUnixNano": str(TIME), "name": "event", "attributes": KEY_VALUES}],
            "links": [{**identity, "attributes": KEY_VALUES}],
        }
        for n in rows
    ]
    point = [{"timeUnixNano": str(TIME + n), "attributes": KEY_VALUES} for n in rows]
    exemplar = {"timeUnixNano": str(TIME), "asInt": "7", "filteredAttributes": KEY_VALUES, **identity}
    with_exemplars = [{**p, "exemplars": [exemplar]} for p in point]
    buckets = {"bucketCounts": ["1", "2"], "explicitBounds": [0.5], "count": "3", "sum": 1.5}
    exponential = {"scale": -2, "count": "6", "sum": 1.5, "zeroCount": "1", "positive": {"offset": -1, "bucketCounts": ["2", "3"]}}
    quantiles = {"count": "2", "sum": 4.0, "quantileValues": [{"quantile": 0.5, "value": 2.0}]}
    metric = [
        {"name": "gauge", "gauge": {"dataPoints": [{**p, "asInt": str(n)} for n, p in enumerate(with_exemplars)]}},
        {"name": "histogram", "histogram": {"aggregationTemporality": 2, "dataPoints": [{**p, **buckets} for p in with_exemplars]}},
        {"name": "exponential", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": [{**p, **exponential} for p in with_exemplars]}},
        {"name": "summary", "summary": {"dataPoints": [{**p, **quantiles} for p in point]}},
    ]
    for path, outer, inner, items, records in [
        ("/v1/logs", "resourceLogs", "scopeLogs", "logRecords", log),
        ("/v1/traces", "resourceSpans", "scopeSpans", "spans", span),
        ("/v1/metrics", "resourceMetrics", "scopeMetrics", "metrics", metric),
    ]:
        post(path, {outer: [{"resource": resource, inner: [{"scope": scope, items: records}]}]})


TABLES = ["logs", "spans", "metrics_number", "metrics_histogram", "metrics_exp_histogram", "metrics_summary"]
# What the rows of a table add up to.
SUMS = {
    "logs": ("CAST(body AS BIGINT)", ROWS * (ROWS - 1) // 2),
    "spans": ("duration_nano", ROWS * (ROWS - 1) // 2),
    "metrics_number": ("value_int", ROWS * (ROWS - 1) // 2),
    "metrics_histogram": ("count", 3 * ROWS),
    "metrics_exp_histogram": ("count", 6 * ROWS),
    "metrics_summary": ("count", 2 * ROWS),
}
MAPS = [
    ("attributes", "attr_types"),
    ("scope_attributes", "scope_attr_types"),
    ("resource_attributes", "resource_attr_types"),
]
# Maps in lists: column, map, types.
NESTED_MAPS = {
    "spans": [("events", "attributes", "attr_types"), ("links", "attributes", "attr_types")],
    "metrics_number": [("exemplars", "filtered_attributes", "filtered_attr_types")],
}


def duckdb_rows(files, table):
    import duckdb

    expression, _ = SUMS[table]
    columns = ", ".join(name for pair in MAPS for name in pair)
    nested = "".join(f", {column}" for column, _, _ in NESTED_MAPS.get(table, []))
    relation = duckdb.sql(f"SELECT {columns}{nested} FROM read_parquet({files!r})")
    rows = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
    for row in rows:
        for name, _ in MAPS:
            # Older versions have {'key': [...], 'value': [...]}.
            if set(row[name]) == {"key", "value"} and isinstance(row[name]["key"], list):
                row[name] = list(zip(row[name]["key"], row[name]["value"]))
    total = duckdb.sql(f"SELECT sum({expression}) FROM read_parquet({files!r})").fetchall()[0][0]
    return rows, int(total)


def pyarrow_rows(files, table):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # One at a time: a name beside a partition directory would make a data set of it.
    whole = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    column = {"logs": "body", "spans": "duration_nano", "metrics_number": "value_int"}.get(table, "count")
    total = pc.sum(pc.cast(whole[column], pa.int64())).as_py()
    return whole.to_pylist(), total


def polars_rows(files, table):
    import polars

    frame = polars.concat([polars.read_parquet(file, hive_partitioning=False) for file in files])
    column = {"logs": "body", "spans": "duration_nano", "metrics_number": "value_int"}.get(table, "count")
    return frame.to_dicts(), frame[column].cast(polars.Int64).sum()


def datafusion_rows(files, table):
    import datafusion

    context = datafusion.SessionContext()
    rows, total = [], 0
    for number, file in enumerate(files):
        context.register_parquet(f"t{number}", file)
        rows += context.sql(f"SELECT * FROM t{number}").to_arrow_table().to_pylist()
        total += context.sql(f"SELECT sum({SUMS[table][0]}) AS s FROM t{number}").to_pydict()["s"][0]
    return rows, total


ENGINES = {"duckdb": duckdb_rows, "pyarrow": pyarrow_rows, "polars": polars_rows, "datafusion": datafusion_rows}


def check(where, files_of):
    checked = []
    for engine, rows_of in ENGINES.items():
        for table in TABLES:
            rows, total = rows_of(files_of(table), table)
            assert len(rows) == ROWS, (where, engine, table, len(rows))
            assert total == SUMS[table][1], (where, engine, table, total)
            for row in rows:
                for name, types in MAPS:
                    expected = ATTRIBUTES + ([("service.name", ("s", "shop"))] if name == "resource_attributes" else [])
                    found = read_map(row[name], row[types])
                    assert found == expected, (where, engine, table, name, found)
                for column, name, types in NESTED_MAPS.get(table, []):
                    for entry in row[column]:
                        found = entry[name]
                        assert read_map(found, entry[types]) == ATTRIBUTES, (where, engine, table, column, found)
        checked.append(engine)
    print(f"{where}: every attribute of {ROWS} rows in each of {len(TABLES)} tables, by {', '.join(checked)}")


def eventually(what, probe):
    for _ in range(600):
        if found := probe():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within a minute: {what}")


send()
found = lambda: sorted(glob.glob(f"{directory}/**/*.parquet", recursive=True))
local = eventually("a file in each table", lambda: len({f.removeprefix(directory).split("/")[1] for f in found()}) == len(TABLES) and found())
check("directory", lambda table: [file for file in local if f"/{table}/dt=2025-11-21/hour=21/" in file])

import boto3

client = boto3.client("s3", endpoint_url=s3, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1")
keys = lambda: [object["Key"] for object in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]
remote = eventually("an object in each table", lambda: len(keys()) >= len(TABLES) and keys())
with tempfile.TemporaryDirectory() as scratch:
    for key in remote:
        client.download_file(bucket, key, os.path.join(scratch, key.replace("/", "~")))
    check("S3", lambda table: sorted(glob.glob(f"{scratch}/{prefix}~{table}~*.parquet")))
assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
