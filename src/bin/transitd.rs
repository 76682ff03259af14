//! The host daemon.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::transitd::tool, transit::cli::transitd::run)
}
