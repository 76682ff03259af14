# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_transit_worker_global_optspecs
    string join \n database= json v/verbose color= h/help V/version
end

function __fish_transit_worker_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_transit_worker_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_transit_worker_using_subcommand
    set -l cmd (__fish_transit_worker_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c transit-worker -n "__fish_transit_worker_needs_command" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_needs_command" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_needs_command" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -s V -l version -d 'Print version'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "serve" -d 'Serve hosts and senders until SIGTERM or SIGINT'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "migrate" -d 'Bring the schema of the database up to date, making the database when there is none'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "backup" -d 'Copy the database to a file, also while a server has it'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "doctor" -d 'Look whether everything is in order, changing nothing'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "user" -d 'Users of the control plane'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "org" -d 'Organisations: nothing of one is visible to another'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "host" -d 'Hosts: machines that run transitd for this Worker'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "source" -d 'Sources: who may post events, where these go, and where replies may go'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "room" -d 'Rooms: agents that read what any of them says there'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "delivery" -d 'Deliveries of events to agents'
complete -c transit-worker -n "__fish_transit_worker_needs_command" -f -a "message" -d 'Messages of agents to each other'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l listen -d 'Where to listen; port 0 takes a free one. A socket that systemd has opened is served instead' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l metrics-listen -d 'Serve /metrics and /readyz here, and not beside everything else' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l public-url -d 'The address under which hosts and senders reach it, when that is another one' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l loop-limit -d 'Messages that agents may send each other, along one reply chain, one pair or in one room, without a person or an event between them; 0 is no limit [default: 30]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l loop-window -d 'The time in which these are counted, and for which it must be quiet until more pass [default: 10m]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l ready-file -d 'Write {"listen","url","pid",["metrics_listen"]} here once it serves; the file goes away when it stops' -r -F
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l keep-messages -d 'Keep messages for so long after they are settled or dead; 0 is for ever' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l keep-deliveries -d 'Keep deliveries of events, with their replies, for so long after they are settled or dead; 0 is for ever' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l log-format -d 'How log lines look' -r -f -a "text\t'For people'
json\t'One JSON object a line'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l allow-private-callbacks -d 'Post replies to loopback and private addresses too'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand migrate" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand migrate" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand migrate" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand migrate" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand backup" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand backup" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand backup" -l force -d 'Replace FILE when it is there'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand backup" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand backup" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand backup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand doctor" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand doctor" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand doctor" -l deep -d 'Compare every index with its table too, which reads all of the database several times'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand doctor" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand doctor" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -f -a "create" -d 'Make a user of the control plane, with an organisation of their own'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and not __fish_seen_subcommand_from create list" -f -a "list" -d 'List the users'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -l email -d 'The address that they sign in with' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -l name -d 'What they are called' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -l password-file -d 'Read the password from FILE; one newline at its end is dropped' -r -F
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand user; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -f -a "create" -d 'Make an organisation'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and not __fish_seen_subcommand_from create list" -f -a "list" -d 'List the organisations'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from create" -l slug -d 'Its short name in commands and addresses [default: made from NAME]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from create" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from create" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from create" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand org; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -f -a "enroll" -d 'Print a code that lets a host in, once and for 15 minutes'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -f -a "list" -d 'List the hosts, the revoked ones too'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and not __fish_seen_subcommand_from enroll list revoke" -f -a "revoke" -d 'Take a host\'s token away: its daemon is cut off at once'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -l public-url -d 'The address under which the Worker is reached [default: the one it serves, or served last]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from enroll" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from list" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from revoke" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from revoke" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from revoke" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from revoke" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from revoke" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand host; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "create" -d 'Make a source, and print its endpoint and its secret, once'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "update" -d 'Change a source; what is not named stays as it is'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "list" -d 'List the sources'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "rotate" -d 'Give a source a new secret, and print it, once. The old one stays valid for a while'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "pause" -d 'Take no events from a source, which then answers as if it did not exist'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "resume" -d 'Take events from a paused source again'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and not __fish_seen_subcommand_from create update list rotate pause resume delete" -f -a "delete" -d 'Delete a source. Replies that wait for it are never posted; deliveries stay'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l target -d 'Where its events go: NAME@HOST or \'#ROOM\'. An agent need not exist yet; its events wait for it. A room must' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l reply-url -d 'Where replies go when an event does not say. It must begin with one of the prefixes' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l reply-url-prefix -d 'What the reply_url of an event must begin with; may be repeated. Without one, no reply can be posted' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l rate -d 'Events that it may send a second' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l burst -d 'Events that it may send at once' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l instructions -d 'One line that the agent reads with every event, of 1,000 characters at most' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l secret-file -d 'Take the secret from FILE instead of making one. One newline at its end is dropped, nothing else' -r -F
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l secret-env -d 'Take it from the environment variable NAME' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l public-url -d 'The address under which the Worker is reached [default: the one it serves, or served last]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l target -d 'Where its events go: NAME@HOST or \'#ROOM\'' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l reply-url -d 'Where replies go when an event does not say' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l reply-url-prefix -d 'What the reply_url of an event must begin with; may be repeated. It replaces the whole list' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l rate -d 'Events that it may send a second' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l burst -d 'Events that it may send at once' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l instructions -d 'One line that the agent reads with every event, of 1,000 characters at most; an empty one clears it' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l public-url -d 'The address under which the Worker is reached [default: the one it serves, or served last]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l no-reply-url -d 'Replies go only where an event says'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l no-reply-url-prefix -d 'Permit no reply_url at all; replies that wait are not posted any more'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -l public-url -d 'The address under which the Worker is reached [default: the one it serves, or served last]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l overlap -d 'How long the old secret stays valid. The one before it, from a rotation not long ago, ends now' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l secret-file -d 'Take the secret from FILE instead of making one. One newline at its end is dropped, nothing else' -r -F
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l secret-env -d 'Take it from the environment variable NAME' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l public-url -d 'The address under which the Worker is reached [default: the one it serves, or served last]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l lost-key -d 'The master key is lost: store the new secret under the one that is there now, and be it a fresh one'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from rotate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from pause" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from pause" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from pause" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from pause" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from pause" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from resume" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from resume" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from resume" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from resume" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from resume" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from delete" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from delete" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from delete" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from delete" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from delete" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand source; and __fish_seen_subcommand_from delete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "create" -d 'Make a room that nobody is in yet'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "update" -d 'Change a room; what is not named stays as it is'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "list" -d 'List the rooms'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "show" -d 'Show a room and who is in it'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "add" -d 'Put an agent into a room, whatever its policy'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "remove" -d 'Take an agent out of a room. Messages that wait for it still reach it'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "delete" -d 'Delete a room and what it holds together. Messages on their way still arrive, events that nobody was there for are settled; its name is free again'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "post" -d 'Say something in a room, as the operator; answers go to the room'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and not __fish_seen_subcommand_from create update list show add remove delete post history" -f -a "history" -d 'Print the latest messages of a room, oldest first'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -l policy -d 'Who may join: every agent, or only whom `room add` adds' -r -f -a "open\t''
invite\t''"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -l loop-limit -d 'Messages of agents, with nobody else between, before the loop guard refuses; 0 turns it off [default: the server\'s]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l policy -d 'Who may join; members stay' -r -f -a "open\t''
invite\t''"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l loop-limit -d 'Messages of agents, with nobody else between, before the loop guard refuses; 0 turns it off' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l no-loop-limit -d 'The server\'s limit holds again'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from list" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from show" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from show" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from add" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from add" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from add" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from add" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from add" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from remove" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from remove" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from remove" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from remove" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from remove" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from delete" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from delete" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from delete" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from delete" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from delete" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from delete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -s m -l message -d 'The body itself' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -l reply-to -d 'The id of the message that it answers' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from post" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -l limit -d 'At most so many' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand room; and __fish_seen_subcommand_from history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -f -a "list" -d 'List deliveries in the order in which their events came; one to a room once for each member'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -f -a "show" -d 'Show one delivery with the attempts to post its reply'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -f -a "requeue" -d 'Make a delivery due now: its agent is shown it again, also one that it has refused for good, or its reply is posted again'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and not __fish_seen_subcommand_from list show requeue handle" -f -a "handle" -d 'Settle a delivery in its agent\'s place. A reply that was not posted yet never will be'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -l state -d 'Only those that stand here' -r -f -a "pending\t''
dispatched\t''
read\t''
replied\t''
handled\t''
dead\t''"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from show" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from show" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from requeue" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from requeue" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from requeue" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from requeue" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from requeue" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from requeue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from handle" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from handle" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from handle" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from handle" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from handle" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand delivery; and __fish_seen_subcommand_from handle" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -f -a "list" -d 'List the messages of agents in the order in which they came'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -f -a "show" -d 'Show one message with its text and what became of it'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -f -a "requeue" -d 'Queue a dead message again, with all its attempts and another 24 h'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and not __fish_seen_subcommand_from list show requeue cancel" -f -a "cancel" -d 'End a message that waits. Its sender is not told, but sees it when it asks'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l state -d 'Only those that stand here' -r -f -a "queued\t''
injected\t''
shown\t''
dead\t''"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l room -d 'Only those to this room' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l limit -d 'Only the latest N' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from show" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from show" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from requeue" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from requeue" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from requeue" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from requeue" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from requeue" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from requeue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from cancel" -l org -d 'The organisation\'s slug or id; needed only when there are several' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from cancel" -l database -d 'The database [default: sqlite:worker.db in the data directory]' -r
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from cancel" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from cancel" -l json -d 'Print one JSON object a line'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from cancel" -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-worker -n "__fish_transit_worker_using_subcommand message; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help (see more with \'--help\')'
