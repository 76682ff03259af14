//! Renders, finds and clips transit/1 envelopes.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::envelope::tool, transit::cli::envelope::run)
}
