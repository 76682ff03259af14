//! The tools of the local daemon, over MCP.

fn main() -> std::process::ExitCode {
    transit::cli::main(transit::cli::mcp::tool, transit::cli::mcp::run)
}
