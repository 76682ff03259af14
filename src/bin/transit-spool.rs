//! Looks after the spool.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::spool::tool, transit::cli::spool::run)
}
