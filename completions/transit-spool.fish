# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_transit_spool_global_optspecs
    string join \n json v/verbose color= h/help V/version
end

function __fish_transit_spool_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_transit_spool_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_transit_spool_using_subcommand
    set -l cmd (__fish_transit_spool_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c transit-spool -n "__fish_transit_spool_needs_command" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_needs_command" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -s V -l version -d 'Print version'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "list" -d 'List entries in the order in which they were added'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "show" -d 'Show entries with their bodies'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "flush" -d 'Try the events that are due'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "retry" -d 'Make entries due now, dead ones too; nothing is sent by that'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "rm" -d 'Remove entries, whatever their state; not one that is being tried right now'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "purge" -d 'Remove old entries that were sent or are dead'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "stats" -d 'Say how much there is'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "export" -d 'Print all entries, one JSON object a line, for import'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "import" -d 'Bring in what export printed. What is there already stays as it is'
complete -c transit-spool -n "__fish_transit_spool_needs_command" -f -a "check" -d 'Look for damage'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand list" -l state -d 'Only those in this state; pending ones include those that are being tried' -r -f -a "pending\t'It waits, or is being tried'
sent\t'The other side has it'
dead\t'It was refused for good, or grew too old'
all\t'Any'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand list" -l dest -d 'Only those whose destination matches this shell pattern: * ? [a-z] [!a-z]' -r
complete -c transit-spool -n "__fish_transit_spool_using_subcommand list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand list" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand show" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand show" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l max -d 'Try at most this many' -r
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l jobs -d 'Try this many at a time' -r
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l deadline -d 'Be done after this time; attempts that are under way then are cut [default: no deadline]' -r
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l timeout -d 'Time for one attempt' -r
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l wait -d 'Wait for another flush to end; with --deadline also for what becomes due before it'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -s q -l quiet -d 'Print only what has died, and failures'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand flush" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -l all-dead -d 'Every entry that is dead'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand rm" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand rm" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand rm" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand purge" -l older-than -d 'How long ago their state changed; for pending ones, how long ago they were added' -r
complete -c transit-spool -n "__fish_transit_spool_using_subcommand purge" -l state -d 'Only those in this state, and pending ones only when they are named here; all is sent and dead' -r -f -a "pending\t'It waits, or is being tried'
sent\t'The other side has it'
dead\t'It was refused for good, or grew too old'
all\t'Any'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand purge" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand purge" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand purge" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand purge" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand stats" -l format -d 'In which form' -r -f -a "text\t'A few lines for people'
json\t'One object'
prometheus\t'The text format of Prometheus'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand stats" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand stats" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand stats" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand stats" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand export" -l state -d 'Only those in this state; pending ones include those that are being tried' -r -f -a "pending\t'It waits, or is being tried'
sent\t'The other side has it'
dead\t'It was refused for good, or grew too old'
all\t'Any'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand export" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand export" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand export" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand import" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand import" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand import" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand check" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand check" -l json -d 'Print one JSON object a line'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand check" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-spool -n "__fish_transit_spool_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'

# By hand: what is there now. What has not the form of an id or a name is left out, so that nothing else gets here.

# The newest thousand ids of the spool, in the states that are named.
function __fish_transit_ids
    transit-spool list --json 2>/dev/null |
        LC_ALL=C sed -nE 's/^\{"id":"((tx|evt)_[0-9a-f]{12})","kind":"(event|message)",.*"state":"('$argv[1]')",.*/\1\t\3, \4/p' |
        tail -n 1000
end

complete -c transit-spool -n "__fish_transit_spool_using_subcommand show rm" -f -a "(__fish_transit_ids '[a-z]+')"
complete -c transit-spool -n "__fish_transit_spool_using_subcommand retry" -f -a "(__fish_transit_ids 'pending|claimed|dead')"
