# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_transit_agent_global_optspecs
    string join \n v/verbose color= h/help V/version
end

function __fish_transit_agent_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_transit_agent_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_transit_agent_using_subcommand
    set -l cmd (__fish_transit_agent_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c transit-agent -n "__fish_transit_agent_needs_command" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_needs_command" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -s V -l version -d 'Print version'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "run" -d 'Run COMMAND once for every envelope, with the envelope on its stdin'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "listen" -d 'Print envelopes as lines of JSON, and read their answers from stdin'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "call" -d 'Call one tool of the local daemon, as the agent that this process runs in'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "install" -d 'Put the adapter of a harness in place, so that its sessions become agents'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "uninstall" -d 'Take the adapter of a harness away, and nothing else'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "adapter" -d 'Be the adapter of a harness that starts it as a child; nothing for people to run'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "socket" -d 'Print the path of the daemon\'s agent.sock, for adapters'
complete -c transit-agent -n "__fish_transit_agent_needs_command" -f -a "tmux" -d 'Type envelopes into a program in a tmux pane, which knows nothing of Transit'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -l name -d 'The agent\'s name; its address is NAME@HOST' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -l harness -d 'The kind of program' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -l session-id -d 'What makes the session the same one after a restart, so that it keeps its address and its mail [default: NAME]' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -l jobs -d 'Run up to N COMMANDs at a time, at most 16; what has an order keeps it' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -l timeout -d 'End a COMMAND that takes longer, and all that it started: SIGTERM, and SIGKILL 5 s later' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -l name -d 'The agent\'s name; its address is NAME@HOST' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -l harness -d 'The kind of program' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -l session-id -d 'What makes the session the same one after a restart, so that it keeps its address and its mail [default: NAME]' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -l auto-ack -d 'Take each envelope as handled once its line is written'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand listen" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand call" -l as -d 'Speak as this agent of the host, when not run inside one' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand call" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand call" -l json -d 'Print every result as JSON, text too'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand call" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand call" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -l dir -d 'The harness\'s configuration directory [default: where the harness itself looks]' -r -F
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -l list -d 'Tell which adapters are installed, and change nothing'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -l dry-run -d 'Tell what would be done, and change nothing'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -l force -d 'Replace or remove what somebody else has changed as well'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -l json -d 'Print one JSON object a file'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -l dir -d 'The harness\'s configuration directory [default: where the harness itself looks]' -r -F
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -l dry-run -d 'Tell what would be done, and change nothing'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -l force -d 'Replace or remove what somebody else has changed as well'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -l json -d 'Print one JSON object a file'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand uninstall" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand adapter" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand adapter" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand adapter" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand socket" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand socket" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand socket" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l name -d 'The agent\'s name; its address is NAME@HOST' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l harness -d 'The kind of program' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l session-id -d 'What makes the session the same one after a restart, so that it keeps its address and its mail [default: NAME]' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l target -d 'The pane, as tmux names it: %7, or SESSION:WINDOW.PANE [default: the one that this runs in]' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l program -d 'Type only while PROGRAM is in the foreground of the pane [default: the one that is there at the start]' -r
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l transcript -d 'The file in which the program keeps its session: an envelope counts as arrived once its id stands there' -r -F
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l tmux-socket -d 'The socket of the tmux server [default: the one in TMUX]' -r -F
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-agent -n "__fish_transit_agent_using_subcommand tmux" -s h -l help -d 'Print help (see more with \'--help\')'
