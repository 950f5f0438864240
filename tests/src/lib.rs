//! What every black-box test shares: starting the gateway, sinks that decode, clients.
