//! Cluster API's kinds: their types, and the definitions that an API server serves them by.
