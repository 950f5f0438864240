//! One received request: bytes, signal, items, tenant, permit, ack.
