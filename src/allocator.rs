//! The allocator, jemalloc. The system's own keeps most of the memory that a thousand slow clients
//! made it allocate. `.cargo/config.toml` sets it up.

/// For the library, so that tests and benches have it too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Starts the allocator's thread. It returns freed memory to the system within a second, even if
/// the process is idle.
///
/// jemalloc could start it by itself, with the first allocation. In a static binary, this comes
/// before glibc knows which permissions a stack needs: the stack would be executable, which
/// systemd's `MemoryDenyWriteExecute=` denies.
pub(crate) fn return_memory_when_idle() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "the allocator's thread does not start; an idle process keeps \
                                freed memory");
    }
}
