//! Faults that the scenarios must find. `build.rs` puts them into the sources.

use std::cell::Cell;

thread_local! {
    static PRESENT: Cell<Option<Fault>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A worker that has run a job and takes a request wakes no other for the jobs that wait.
    JobsWaitForTheirWorker,
    /// The worker that takes a request does not send the next one to tiny_http.
    RequestsStayInTheQueue,
    StopWakesNobody,
    WatchdogIsForgotten,
    /// A worker runs no jobs of an owner while another owner has some.
    OneOwnerIsServed,
    PanicKeepsItsTurn,
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
