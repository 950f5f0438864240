#!/bin/bash
# The promises of the parquet exporter about object stores, held against a server that others wrote: Azurite for Azure Blob Storage (npm
# install azurite). By hand, since it does not come with cargo. S3 is tested with moto (tests/parquet); of Google Cloud Storage no server was
# found that knows the conditional PUT of its XML interface: fake-gcs-server 1.56 answers 400 to it.
#
# Usage: tests/object_stores.sh
# Environment: AZURITE [azurite-blob], CARGO [cargo]: the programs
set -euo pipefail
cd "$(dirname "$0")/.."

azure=http://127.0.0.1:24444/devstoreaccount1
# The account of every Azurite, by its documentation.
key=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==

out=$(mktemp -d)
children=()
stop() {
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    rm -rf "$out"
}
trap stop EXIT

"${AZURITE:-azurite-blob}" --blobHost 127.0.0.1 --blobPort 24444 --inMemoryPersistence --skipApiVersionCheck >"$out/azure.log" 2>&1 &
children+=("$!")

await() { # URL
    for _ in $(seq 200); do
        if curl -s -o "$out/answer" "$1"; then return; fi
        sleep 0.1
    done
    echo "nothing answers at $1" >&2
    cat "$out"/*.log >&2
    return 1
}
await "$azure"

date=$(TZ=GMT LC_ALL=C date '+%a, %d %b %Y %H:%M:%S GMT')
version=2021-08-06
printf 'PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:%s\nx-ms-version:%s\n/devstoreaccount1/devstoreaccount1/container\nrestype:container' \
    "$date" "$version" >"$out/text"
signature=$(openssl dgst -sha256 -mac HMAC -macopt "hexkey:$(base64 -d <<<"$key" | od -An -v -tx1 | tr -d ' \n')" -binary "$out/text" | base64 -w0)
curl -sf -o "$out/answer" -X PUT -H "x-ms-date: $date" -H "x-ms-version: $version" -H 'content-length: 0' \
    -H "authorization: SharedKey devstoreaccount1:$signature" "$azure/container?restype=container"

SLUICE_AZURE=$azure SLUICE_AZURE_KEY=$key \
    ${CARGO:-cargo} test -p sluice-parquet --lib exporter::stores::azurite -- --nocapture
