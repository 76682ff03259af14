//! Sends an event or a message.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::send::tool, transit::cli::send::run)
}
