//! Shows the frames of a wire.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::wire_dump::tool, transit::cli::wire_dump::run)
}
