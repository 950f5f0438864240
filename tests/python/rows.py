"""Counts rows by the number in their body: every acknowledged one must be in one file, and nothing twice.

    rows.py ACKNOWLEDGED DIRECTORY [S3 BUCKET PREFIX]

ACKNOWLEDGED is a file with one number a line.
"""

import glob
import os
import sys
import tempfile

import duckdb

acknowledged = {int(line) for line in open(sys.argv[1])}
directory = sys.argv[2]


def check(where, files):
    bodies = duckdb.sql(f"SELECT body FROM read_parquet({files!r})").fetchall()
    rows = [int(body) for (body,) in bodies]
    lost, twice = acknowledged - set(rows), len(rows) - len(set(rows))
    print(f"{where}: {len(acknowledged)} rows acknowledged, {len(rows)} in {len(files)} files, {len(lost)} lost, {twice} twice")
    assert not lost and not twice, sorted(lost)[:20]


check("directory", glob.glob(f"{directory}/**/*.parquet", recursive=True))
if len(sys.argv) > 3:
    import boto3

    s3, bucket, prefix = sys.argv[3:]
    client = boto3.client("s3", endpoint_url=s3, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1")
    with tempfile.TemporaryDirectory() as scratch:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for object in page.get("Contents", []):
                client.download_file(bucket, object["Key"], os.path.join(scratch, object["Key"].replace("/", "~")))
        check("S3", glob.glob(f"{scratch}/*.parquet"))
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
