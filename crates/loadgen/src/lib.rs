//! Realistic OTLP payloads of every signal with unique item ids; the sink that checks them.
