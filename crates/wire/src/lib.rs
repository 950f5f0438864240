//! OTLP wire views: validate, count, split, edit and concatenate export requests over borrowed bytes.
