//! Faults that the scenarios must find. `build.rs` puts them into the sources.

use std::cell::Cell;

thread_local! {
    static PRESENT: Cell<Option<Fault>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A worker starts a job while no worker receives, and wakes none to receive.
    NobodyReceives,
    /// The worker that takes a request does not send the next one to tiny_http.
    RequestsStayInTheOutbox,
    StopWakesNobody,
    WatchdogIsForgotten,
    PanicEndsTheWorker,
    /// A job that has ended counts as running.
    JobKeepsItsPlace,
    /// A lane waits while the lane before it runs as many jobs as it may.
    OneLaneIsServed,
    /// The fair queue forgets what a client has left when its first item is taken.
    RestOfAClientIsLost,
    DroppedWithoutAnswer,
    /// A mutation for which the writer's channel has no room.
    RefusedWithoutAnswer,
    MissingLockIsNotTold,
    FailedCommitIsNotTold,
    /// The writes of a mutation that is rejected or fails are committed.
    NothingIsUndone,
    /// A panic while an outcome is told.
    PanicEndsTheWriter,
    CloseDoesNotWait,
}

impl Fault {
    /// In this thread. Shuttle runs all threads of a scenario in one.
    pub fn is_present(self) -> bool {
        PRESENT.get() == Some(self)
    }

    pub fn put_in(self) {
        PRESENT.set(Some(self));
    }
}
