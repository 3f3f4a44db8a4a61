//! The program's worker pool and writer under Shuttle, which runs a scenario with many orders of
//! its threads' steps. It reports a deadlock, and so a wake-up that is lost.
//!
//! The modules have the paths that they have in the program. `build.rs` takes the program's own
//! sources where the schedule matters; [`stand_ins`] has the rest.

pub mod explore;
pub mod faults;
pub mod stand_ins;

use stand_ins::program::{clock, config, files, metrics, model, secret};

pub mod words {
    pub fn without_error_numbers(message: &str) -> String {
        message.to_owned()
    }
}

#[rustfmt::skip]
pub mod http {
    use crate::stand_ins::program::response;
    pub use crate::stand_ins::program::response as error;
    mod fair_queue { include!(concat!(env!("OUT_DIR"), "/http/fair_queue.rs")); }
    pub mod scheduler { include!(concat!(env!("OUT_DIR"), "/http/scheduler.rs")); }
    pub mod worker_pool { include!(concat!(env!("OUT_DIR"), "/http/worker_pool.rs")); }
    pub mod responder { include!(concat!(env!("OUT_DIR"), "/http/responder.rs")); }
    pub mod request { include!(concat!(env!("OUT_DIR"), "/http/request.rs")); }
}
#[rustfmt::skip]
#[allow(dead_code, unused_imports, reason = "the program's other modules use the rest")]
#[allow(clippy::drop_non_drop, reason = "what is dropped has destructors in the program")]
pub mod store {
    pub use crate::stand_ins::database;
    pub use crate::stand_ins::records;
    use crate::stand_ins::database as data_dir;
    pub mod error { include!(concat!(env!("OUT_DIR"), "/store/error.rs")); }
    pub mod tenant {
        include!(concat!(env!("OUT_DIR"), "/store/tenant/mod.rs"));
        use crate::stand_ins::{TryLockOrWait as _, database as file};
        mod writer { include!(concat!(env!("OUT_DIR"), "/store/tenant/writer.rs")); }
        mod upkeep { include!(concat!(env!("OUT_DIR"), "/store/tenant/upkeep.rs")); }
    }
}
