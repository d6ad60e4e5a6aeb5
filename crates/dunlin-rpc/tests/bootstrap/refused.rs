//! refused
