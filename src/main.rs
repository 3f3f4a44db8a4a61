//! Runs the command line. All code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenantdesk::cli::main()
}
