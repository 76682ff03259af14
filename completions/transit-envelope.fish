# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_transit_envelope_global_optspecs
    string join \n v/verbose color= h/help V/version
end

function __fish_transit_envelope_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_transit_envelope_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_transit_envelope_using_subcommand
    set -l cmd (__fish_transit_envelope_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -s V -l version -d 'Print version'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -f -a "render" -d 'Render an envelope from options and a body, or many from NDJSON'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -f -a "parse" -d 'Find every envelope in a stream, and print each as a line of JSON'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -f -a "preview" -d 'Print the one line that a channel delivery shows of its body'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -f -a "full" -d 'Print the <transit_full …> wrapper in which read_message returns a message'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -f -a "id" -d 'Print fresh ids'
complete -c transit-envelope -n "__fish_transit_envelope_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l kind -d 'What kind of message it is' -r -f -a "dm\t''
room\t''
channel\t''"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l from -d 'Who it is from: an address, or a connector\'s name' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l id -d 'Its id: tx_… or, for a channel, dlv_…' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l ts -d 'When it was sent' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l room -d 'The room, without #' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l seq -d 'Its number in the room' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l reply-to -d 'The message that it answers' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l conversation-id -d 'The conversation of a channel delivery' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l connector -d 'The connector of a channel delivery [default: as --from]' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l user -d 'Who wrote it upstream [default: unknown]' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l redelivery -d 'How often it was shown before [default: 0]' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l trigger -d 'Why it is delivered' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l json -d 'Read NDJSON: an object a line, by the names of attributes, and body'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -l read -d 'It was read, but not settled'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand render" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand parse" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand parse" -l strict -d 'Stop with 65 at the first damaged envelope'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand parse" -l json -d 'As every command has it; the output is JSON anyway'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand parse" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand parse" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand preview" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand preview" -l json -d 'Print JSON'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand preview" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand preview" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l id -d 'The delivery or message: dlv_… or tx_…' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l conversation-id -d 'Its conversation' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l user -d 'Who wrote it upstream [default: unknown]' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l connector -d 'The connector that it came by' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l status -d 'The state of the delivery: pending, dispatched, read, replied, handled, …' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l read -d 'Whether it is read for the first time' -r -f -a "first\t''
again\t''"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l instructions -d 'What the operator of the source asks for' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l settled -d 'There is nothing left to settle'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -l json -d 'Print JSON'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand full" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand id" -s n -l count -d 'How many' -r
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand id" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand id" -l json -d 'Print JSON'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand id" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand id" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand help; and not __fish_seen_subcommand_from render parse preview full id help" -f -a "render" -d 'Render an envelope from options and a body, or many from NDJSON'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand help; and not __fish_seen_subcommand_from render parse preview full id help" -f -a "parse" -d 'Find every envelope in a stream, and print each as a line of JSON'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand help; and not __fish_seen_subcommand_from render parse preview full id help" -f -a "preview" -d 'Print the one line that a channel delivery shows of its body'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand help; and not __fish_seen_subcommand_from render parse preview full id help" -f -a "full" -d 'Print the <transit_full …> wrapper in which read_message returns a message'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand help; and not __fish_seen_subcommand_from render parse preview full id help" -f -a "id" -d 'Print fresh ids'
complete -c transit-envelope -n "__fish_transit_envelope_using_subcommand help; and not __fish_seen_subcommand_from render parse preview full id help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
