//! The thin end of the program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenantdesk::cli::main()
}
