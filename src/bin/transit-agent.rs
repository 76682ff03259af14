//! Any program as an agent.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::agent::tool, transit::cli::agent::run)
}
