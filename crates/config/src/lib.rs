//! Collector-shaped YAML with file, line and column kept through merge, --set and ${env:X}.
