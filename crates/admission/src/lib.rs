//! The memory budget: permits reserved before a byte is read.
