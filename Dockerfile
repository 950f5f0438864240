# The gateway as an image: one static executable, its configuration, nothing else.
#
#   docker build -t sluice .
#   docker buildx build --platform linux/amd64,linux/arm64 -t sluice .
#   docker run --rm -p 4317:4317 -p 4318:4318 -e BACKEND_ENDPOINT=https://otlp.example.com:4317 sluice
#
# Its configuration is config/gateway.yaml, which listens on all addresses: in a container, localhost is
# the container itself. Mount another one over /etc/sluice/config.yaml, or change single values:
#
#   docker run --rm -v "$PWD/my.yaml:/etc/sluice/config.yaml:ro" sluice
#   docker run --rm sluice --config /etc/sluice/config.yaml --set exporters.otlp/backend.compression=gzip
#
# The load generator and counting sink of deploy/compare, with the same builder:
#
#   docker build -t sluice-rig --target rig .
#
# Guided by a profile of itself under load, which makes it 3 to 22% cheaper to run and takes three times as long to build
# (docs/building.md):
#
#   docker build -t sluice --build-arg PGO=1 .
#
# Any Debian-like image with rustup and a C compiler builds it; it compiles on the machine's own
# architecture and cross-compiles for the other. Needs BuildKit (or buildah), for --platform. Stop it with
# time to drain its queues: docker stop --time 40, terminationGracePeriodSeconds: 40.
ARG BUILDER=rust:1.95-bookworm

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETARCH
WORKDIR /src
# Before the sources, so that it is done once: a compiler for the other architecture, where it is needed.
RUN own=$(dpkg --print-architecture); arch=${TARGETARCH:-$own}; echo "$arch" >/arch; \
    case "$arch-$own" in \
        amd64-amd64 | arm64-arm64) packages= ;; \
        arm64-*) packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;; \
        amd64-*) packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;; \
        *) echo "no sluice for $arch" >&2; exit 1 ;; \
    esac; \
    if [ -n "$packages" ]; then \
        apt-get update -q && apt-get install -q -y --no-install-recommends $packages \
            && rm -rf /var/lib/apt/lists/*; \
    fi
COPY . .

# Only built where it is asked for.
FROM build AS build-rig
RUN deploy/build-static.sh "$(cat /arch)" gnu sluice-rig && cp "target/static/$(cat /arch)/sluice-rig" /sluice-rig

FROM scratch AS rig
LABEL org.opencontainers.image.title="sluice-rig" \
      org.opencontainers.image.description="Load, a counting sink, and the comparison of telemetry gateways." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-rig /sluice-rig /sluice-rig
USER 65532:65532
ENTRYPOINT ["/sluice-rig"]

FROM build AS build-sluice
ARG PGO=
RUN arch=$(cat /arch) \
    && if [ -n "$PGO" ]; then \
        rustup component add llvm-tools && deploy/pgo.sh || exit 1; export PGO_PROFILE=target/pgo/sluice.profdata; \
    fi \
    && deploy/build-static.sh "$arch" \
    && mkdir -p /image/var/lib/sluice /image/etc/sluice \
    && cp "target/static/$arch/sluice" /image/sluice \
    && cp config/gateway.yaml /image/etc/sluice/config.yaml

FROM scratch
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="A telemetry gateway: OTLP and Prometheus remote write in; OTLP, remote write and Parquet out; nothing lost silently." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-sluice /image/sluice /sluice
COPY --from=build-sluice /image/etc/sluice /etc/sluice
# Relative paths of the configuration (files, queues) mean this directory: mount a volume here.
COPY --from=build-sluice --chown=65532:65532 /image/var/lib/sluice /var/lib/sluice
WORKDIR /var/lib/sluice
# By number, since there is no passwd; so that Kubernetes can tell that it is not root.
USER 65532:65532
# OTLP over gRPC and HTTP; /metrics; /live and /ready.
EXPOSE 4317 4318 8888 13133
ENTRYPOINT ["/sluice"]
CMD ["--config", "/etc/sluice/config.yaml"]
