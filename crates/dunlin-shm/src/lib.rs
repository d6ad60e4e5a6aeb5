//! The shared-memory device of Dunlin: a software RNIC between processes of one host.
