//! A pipeline's queue: written once, read by N cursors.
