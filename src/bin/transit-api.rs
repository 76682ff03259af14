//! Copies lines of JSON to the local client API and back.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::api::tool, transit::cli::api::run)
}
