complete -c transit-wire-dump -l filter -d 'Only frames with these values; repeat it for others' -r
complete -c transit-wire-dump -l width -d 'Columns of a line, 0 for no limit [default: the terminal\'s]' -r
complete -c transit-wire-dump -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-wire-dump -l proxy -d 'Listen here, and pass each connection on to --to' -r
complete -c transit-wire-dump -l to -d 'The server behind --proxy: ws, wss, http or https' -r
complete -c transit-wire-dump -l connect -d 'Open a WebSocket; print what comes, send the lines of stdin' -r
complete -c transit-wire-dump -l token-file -d 'Send the token in FILE with --connect' -r -F
complete -c transit-wire-dump -l host -d 'Say hello as this host, and keep the connection alive' -r
complete -c transit-wire-dump -l socket -d 'The Unix socket behind --proxy-socket' -r -F
complete -c transit-wire-dump -l proxy-socket -d 'Listen on this Unix socket, and pass on to --socket' -r -F
complete -c transit-wire-dump -l write -d 'Add every record to FILE, which is made 0600' -r -F
complete -c transit-wire-dump -l json -d 'Print records in JSON, one a line'
complete -c transit-wire-dump -l follow -d 'Go on reading as files grow, are rotated, or come to be; until a signal'
complete -c transit-wire-dump -l stats -d 'Print numbers instead: frames, bytes, and how long answers took'
complete -c transit-wire-dump -l check -d 'Print instead what breaks the protocol; exit 1 if anything does'
complete -c transit-wire-dump -l show-secrets -d 'Show capabilities, tokens and secrets, which a dump of other programs may hold'
complete -c transit-wire-dump -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-wire-dump -l quiet -d 'Print nothing, with --write'
complete -c transit-wire-dump -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-wire-dump -s V -l version -d 'Print version'
