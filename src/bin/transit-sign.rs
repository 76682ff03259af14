//! Signs and verifies exact bytes.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::sign::tool, transit::cli::sign::run)
}
