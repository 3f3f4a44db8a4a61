//! The gate as a client sees it: raw bytes over TCP, against the library with a small handler behind it.

mod desk;
mod faults;
mod framing;
mod limits;
mod overload;
mod tls;
