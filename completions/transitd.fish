# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_transitd_global_optspecs
    string join \n v/verbose color= h/help V/version
end

function __fish_transitd_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_transitd_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_transitd_using_subcommand
    set -l cmd (__fish_transitd_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c transitd -n "__fish_transitd_needs_command" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_needs_command" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_needs_command" -s V -l version -d 'Print version'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "run" -d 'Run the daemon in the foreground, until SIGINT or SIGTERM'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "enroll" -d 'Enrol this host with a code from the Worker\'s operator'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "quickstart" -d 'See the whole of Transit at work on this machine, with no account and no network'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "status" -d 'Tell how the daemon is'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "pause" -d 'Hand nothing over to agents any more, until `resume`'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "resume" -d 'Hand over again what has come since `pause`, and what comes'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "kick" -d 'Let the daemon connect to the Worker anew, at once'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "reload" -d 'Let the daemon read its configuration and its enrolment anew, as SIGHUP does'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "doctor" -d 'Look whether everything is in place, and say how to mend what is not'
complete -c transitd -n "__fish_transitd_needs_command" -f -a "stop" -d 'Stop the daemon in order, and wait until it has ended'
complete -c transitd -n "__fish_transitd_using_subcommand run" -l ready-file -d 'Write FILE once the daemon serves: one JSON object with its pid and its sockets' -r -F
complete -c transitd -n "__fish_transitd_using_subcommand run" -l wire-log -d 'Add every frame to and from the Worker to FILE, without secrets, one line of JSON each' -r -F
complete -c transitd -n "__fish_transitd_using_subcommand run" -l log-format -d 'How log lines look' -r -f -a "text\t'For people'
json\t'One JSON object a line'"
complete -c transitd -n "__fish_transitd_using_subcommand run" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand run" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -l url -d 'The Worker\'s address' -r
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -l code -d 'The code' -r
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -l host -d 'The host that the code must be for' -r
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -l force -d 'Replace an enrolment that is there'
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -l json -d 'Print one JSON object'
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand enroll" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand quickstart" -l dir -d 'Keep everything in DIR, and find it there again next time. Without it, a temporary directory is used and removed at the end' -r -F
complete -c transitd -n "__fish_transitd_using_subcommand quickstart" -l port -d 'Let the Worker listen on this port of loopback; 0 takes a free one' -r
complete -c transitd -n "__fish_transitd_using_subcommand quickstart" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand quickstart" -l once -d 'End after the round trip: 0 when every step was good, 1 when one was not'
complete -c transitd -n "__fish_transitd_using_subcommand quickstart" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand quickstart" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand status" -l wait -d 'Wait until the daemon is connected to the Worker, at most this long' -r
complete -c transitd -n "__fish_transitd_using_subcommand status" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand status" -l json -d 'Print one JSON object'
complete -c transitd -n "__fish_transitd_using_subcommand status" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand pause" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand pause" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand resume" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand resume" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand kick" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand kick" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand kick" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand reload" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand reload" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand reload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand doctor" -l probe -d 'Send AGENT a message the whole way, and wait until its session has it' -r
complete -c transitd -n "__fish_transitd_using_subcommand doctor" -l timeout -d 'How long the probe may take' -r
complete -c transitd -n "__fish_transitd_using_subcommand doctor" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand doctor" -l json -d 'Print one JSON object for each thing that was looked at, and for each step of a probe'
complete -c transitd -n "__fish_transitd_using_subcommand doctor" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transitd -n "__fish_transitd_using_subcommand stop" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transitd -n "__fish_transitd_using_subcommand stop" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transitd -n "__fish_transitd_using_subcommand stop" -s h -l help -d 'Print help (see more with \'--help\')'
