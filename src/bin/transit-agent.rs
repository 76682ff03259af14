//! Any program as an agent.

fn main() -> std::process::ExitCode {
    transit::cli::agent::main()
}
