//! The shell every receiver shares: listeners, TLS, auth, admission before the body, inflation, refusals.
