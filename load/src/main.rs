//! `load`: offers a UDP load, receives one, or both, and says whether the
//! load that was offered is the load that was asked for.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
