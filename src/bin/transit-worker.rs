//! The self-hosted Worker.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::worker::tool, transit::cli::worker::run)
}
