"""An S3 server with one bucket: moto's. Prints its port, then runs until it is killed.

    s3_server.py BUCKET
"""

import sys
import threading

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
client = boto3.client(
    "s3",
    endpoint_url=f"http://{host}:{port}",
    aws_access_key_id="key",
    aws_secret_access_key="secret",
    region_name="us-east-1",
)
client.create_bucket(Bucket=sys.argv[1])
print(port, flush=True)
threading.Event().wait()
