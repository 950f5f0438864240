//! The shell every exporter shares: HTTP/1.1 and h2 pools, DNS re-resolution, TLS, compression.
