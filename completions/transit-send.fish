complete -c transit-send -s m -l message -d 'The body itself' -r
complete -c transit-send -l status -d 'Say what became of the event or message ID, and send nothing' -r
complete -c transit-send -l secret-file -d 'Read the secret from FILE, and not from the variable TRANSIT_SECRET' -r -F
complete -c transit-send -l secret-env -d 'Read it from variable NAME [default: TRANSIT_SECRET]' -r
complete -c transit-send -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-send -l conversation -d 'The conversation that the event belongs to, 1 to 200 characters' -r
complete -c transit-send -l event-key -d 'The key that makes a repeated event one [default: a fresh one]' -r
complete -c transit-send -l user -d 'Who it is from, as upstream shows it' -r
complete -c transit-send -l trigger -d 'Why it is delivered, such as mention or alert' -r
complete -c transit-send -l meta -d 'An entry of the event\'s meta; may be repeated' -r
complete -c transit-send -l reply-url -d 'Where a reply is posted instead of the source\'s own address' -r
complete -c transit-send -l jobs -d 'With --lines, send this many at a time' -r
complete -c transit-send -l timeout -d 'Time for one attempt; at most 10s of it for connecting [default: 30s]' -r
complete -c transit-send -l as -d 'The agent that a message is from, when not run inside one' -r
complete -c transit-send -l reply-to -d 'The id of the message that a message answers' -r
complete -c transit-send -l wait -d 'Wait until it is injected or settled [default time: 60s]' -r
complete -c transit-send -l list-sources -d 'Print the names of the sources in the configuration'
complete -c transit-send -l json -d 'Print outcomes as lines of JSON'
complete -c transit-send -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-send -l raw -d 'Send the body as the whole request body, byte for byte'
complete -c transit-send -l lines -d 'Send every line of the body, a JSON object, as one event'
complete -c transit-send -l no-spool -d 'Keep nothing; a passing failure then ends with 75'
complete -c transit-send -l spool-only -d 'Only keep it; transitd and transit-spool flush try it'
complete -c transit-send -l dry-run -d 'Check everything and print the request that would go out'
complete -c transit-send -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-send -s V -l version -d 'Print version'

# By hand: what is there now. What has not the form of an id or a name is left out, so that nothing else gets here.

# The newest thousand ids of the spool, in the states that are named.
function __fish_transit_ids
    transit-spool list --json 2>/dev/null |
        LC_ALL=C sed -nE 's/^\{"id":"((tx|evt)_[0-9a-f]{12})","kind":"(event|message)",.*"state":"('$argv[1]')",.*/\1\t\3, \4/p' |
        tail -n 1000
end

# The names of the sources in the configuration.
function __fish_transit_sources
    transit-send --list-sources 2>/dev/null | LC_ALL=C grep -xE '[a-z][a-z0-9_-]{0,31}'
end

# Whether DEST is the next word: the first one that belongs to no option.
function __fish_transit_send_wants_dest
    set -l words (commandline -opc)
    argparse -n transit-send V/version as=+ color=+ conversation=+ dry-run event-key=+ h/help jobs=+ json lines list-sources m/message=+ meta=+ no-spool raw reply-to=+ reply-url=+ secret-env=+ secret-file=+ spool-only status=+ timeout=+ trigger=+ user=+ v/verbose wait=+ -- $words[2..] 2>/dev/null
    and not set -q argv[1]
    and not set -q _flag_status
    and not set -q _flag_list_sources
end

complete -c transit-send -l status -x -a "(__fish_transit_ids '[a-z]+')"
complete -c transit-send -n __fish_transit_send_wants_dest -f -a "(__fish_transit_sources)" -d source
