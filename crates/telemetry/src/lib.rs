//! The ledger, self-metrics and logging.
